// Loads one tensor at a time into the program's buffers.

#include "LoadTensor.h"
#include "CheckpointFiles.h"
#include "cleave/io/Error.h"

namespace cleave {

const ArrayView *findTensor(const SafetensorsReader &file,
                            const ManifestTensor &tensor,
                            const std::string &slot) {
  if (!slot.empty()) // state has no aliases
    return file.find(tensor.name + "." + slot);
  const ArrayView *view = file.find(tensor.name);
  for (const std::string &alias : tensor.aliases)
    if (!view)
      view = file.find(alias);
  return view;
}

void loadBuffer(const std::string &label, const ArrayView *view,
                const std::vector<int64_t> &shape, const std::string &buffer,
                StepExecutor &executor) {
  if (!view)
    throw InputError(label + " is missing");
  if (view->shape != shape)
    throw InputError(label + " has shape " + shapeToString(view->shape) +
                     ", expected " + shapeToString(shape));
  const BufferInfo &info = executor.need(buffer);
  if (view->dtype == info.dtype) {
    executor.scatter(buffer, *view);
    return;
  }
  Array converted = makeArray(info.dtype, shape);
  convertElements(view->dtype, view->data, info.dtype, converted.bytes.data(),
                  converted.elements(), label);
  executor.scatter(buffer, converted);
}

void loadTensor(const std::string &path, const SafetensorsReader &file,
                const ManifestTensor &tensor, const std::string &slot,
                const std::vector<int64_t> &shape, const std::string &buffer,
                StepExecutor &executor) {
  auto label = [&](const std::string &name) {
    return path + ": tensor '" + name + (slot.empty() ? "" : "." + slot) + "'";
  };
  if (tensor.parts.empty())
    return loadBuffer(label(tensor.name), findTensor(file, tensor, slot), shape,
                      buffer, executor);
  Array whole = makeArray(executor.need(buffer).dtype, shape);
  size_t count = tensor.parts.size(), size = whole.bytes.size() / count;
  std::vector<int64_t> want(shape.begin() + 1, shape.end());
  for (size_t i = 0; i < count; ++i) {
    ManifestTensor part = partOf(tensor, i);
    const ArrayView *view = findTensor(file, part, slot);
    if (!view)
      throw InputError(label(part.name) + " is missing");
    if (view->shape != want)
      throw InputError(label(part.name) + " has shape " +
                       shapeToString(view->shape) + ", expected " +
                       shapeToString(want));
    convertElements(view->dtype, view->data, whole.dtype,
                    whole.bytes.data() + i * size, whole.elements() / count,
                    label(part.name));
  }
  executor.scatter(buffer, whole);
}

/// Reads directly from the mapped file unless a conversion is needed, so that
/// no second copy of a large tensor is made.
void loadInitialValue(const ManifestTensor &tensor, WeightFiles &files,
                      StepExecutor &executor, uint64_t seed) {
  if (tensor.weight &&
      tensor.weight->dtype == executor.need(tensor.buffer).dtype) {
    ArrayView view = files.view(tensor);
    if (reinterpret_cast<uintptr_t>(view.data) % elementSize(view.dtype) == 0)
      return executor.scatter(tensor.buffer, view);
  }
  executor.scatter(tensor.buffer, initialValue(tensor, files, seed));
}

void initializeState(const Manifest &manifest, WeightFiles &files,
                     StepExecutor &executor, uint64_t seed) {
  bool runs = manifest.hasAction("init_state");
  if (runs)
    executor.run("init_state");
  for (const ManifestState &item : manifest.state) {
    if (item.init == "zeros") {
      if (!runs)
        executor.zero(item.buffer);
      continue;
    }
    // The state is a copy of the parameter in a type of higher precision. So
    // the initial value is converted to the state's type, not to the
    // parameter's.
    ManifestTensor tensor = *manifest.tensor(item.parameter);
    tensor.dtype = executor.need(item.buffer).dtype;
    executor.scatter(item.buffer, initialValue(tensor, files, seed));
  }
}

} // namespace cleave
