// Finds the first tensor with a NaN or an infinity.

#include "NonFinite.h"
#include "cleave/trainer/Data.h"

#include <algorithm>

namespace cleave {

std::string firstNonFiniteTensor(const Manifest &manifest,
                                 StepExecutor &executor, bool updated) {
  auto search = [&](const std::string &buffer,
                    const std::string &label) -> std::string {
    const BufferInfo &info = executor.need(buffer);
    if (!isFloat(info.dtype))
      return "";
    Array value = executor.gather(buffer, info.dtype);
    int64_t at =
        firstNonFinite(value.dtype, value.bytes.data(), value.elements());
    if (at < 0)
      return "";
    return label + ", element " + std::to_string(at) + " of " +
           shapeToString(value.shape);
  };
  auto ofTensors = [&]() -> std::string {
    for (const ManifestTensor &tensor : manifest.tensors)
      if (std::string text =
              search(tensor.buffer, tensor.kind + " '" + tensor.name + "'");
          !text.empty())
        return text;
    return "";
  };
  auto ofGradients = [&]() -> std::string {
    for (const BufferInfo &buffer : executor.buffers())
      if (buffer.role == role::gradient)
        if (std::string text =
                search(buffer.name,
                       "gradient of '" +
                           (buffer.of.empty() ? buffer.name : buffer.of) + "'");
            !text.empty())
          return text;
    return "";
  };
  for (bool gradients : {updated, !updated})
    if (std::string text = gradients ? ofGradients() : ofTensors();
        !text.empty())
      return text;
  for (const ManifestState &item : manifest.state)
    if (std::string text = search(item.buffer, "state '" + item.parameter +
                                                   "." + item.slot + "'");
        !text.empty())
      return text;
  return "the " + std::string(updated ? "norm" : "loss") +
         " itself; parameters and gradients are finite";
}

bool isStateFinite(const Manifest &manifest, StepExecutor &executor) {
  auto isFinite = [&](const std::string &buffer) {
    const BufferInfo &info = executor.need(buffer);
    if (!isFloat(info.dtype))
      return true;
    Array value = executor.gather(buffer, info.dtype);
    return firstNonFinite(value.dtype, value.bytes.data(), value.elements()) <
           0;
  };
  return std::all_of(manifest.tensors.begin(), manifest.tensors.end(),
                     [&](const ManifestTensor &tensor) {
                       return tensor.kind != "parameter" ||
                              isFinite(tensor.buffer);
                     }) &&
         std::all_of(
             manifest.state.begin(), manifest.state.end(),
             [&](const ManifestState &item) { return isFinite(item.buffer); });
}

std::string nonFiniteData(const Manifest &manifest, const Settings &settings,
                          const Dataset &data, int64_t nextSample) {
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < manifest.batch; ++i)
    samples.push_back(trainingSample(
        nextSample + i, data.samples(Split::training), settings.dataSeed));
  std::sort(samples.begin(), samples.end());
  return data.firstNonFinite(samples);
}

std::string describeNonFinite(const Manifest &manifest, StepExecutor &executor,
                              const std::string &given, bool updated) {
  // An infinity in the data may be legitimate, as in a mask. So the first
  // tensor that is not finite is named, too.
  return (given.empty() ? "" : "nor is the data: " + given + "; ") +
         "the first non-finite tensor is " +
         firstNonFiniteTensor(manifest, executor, updated) +
         " (train.on_nan = \"skip\" leaves such steps out)";
}

} // namespace cleave
