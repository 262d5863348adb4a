//===- Infer.cpp - forward only -------------------------------------------===//
//
// The user's arrays may have any number of samples. They are fed in
// microbatches; the last one is filled up with zeros, and the outputs of these
// padding samples are dropped.
//
//===----------------------------------------------------------------------===//
#include "Slices.h"
#include "cleave/io/Error.h"
#include "cleave/io/Escape.h"
#include "cleave/io/File.h"
#include "cleave/io/Npy.h"
#include "cleave/trainer/Checkpoint.h"
#include "cleave/trainer/Data.h"
#include "cleave/trainer/Feeder.h"
#include "cleave/trainer/Settings.h"
#include "cleave/trainer/Train.h"

#include <algorithm>
#include <cstdio>
#include <map>

namespace cleave {

namespace {

/// An input of the model's graph and its value: an array of the user, or one
/// that the host generates.
struct Fed {
  const ManifestInput *input;
  Array array;
};

/// Returns whether only training reads the input, so that "forward" does not.
bool isTrainingOnly(const ManifestInput &input) {
  return input.trainingOnly ||
         (input.role == InputRole::Labels &&
          (input.source.empty() || input.source == "next")) ||
         input.role == InputRole::SampleIds || input.role == InputRole::Step ||
         input.role == InputRole::LearningRate ||
         input.role == InputRole::Seed || input.role == InputRole::Microbatch;
}

class Inputs {
public:
  Inputs(const Manifest &manifest, const std::string &path, int64_t ignoreIndex)
      : ignoreIndex(ignoreIndex) {
    NpzReader file(path);
    std::vector<std::string> unknown = file.names();
    std::string firstName, known;
    for (const ManifestInput &input : manifest.inputs) {
      if (!isTrainingOnly(input))
        known += (known.empty() ? "'" : ", '") + input.name + "'";
      if (!file.has(input.name)) {
        if (isGenerated(input) || isTrainingOnly(input))
          continue;
        throw InputError(path + ": has no array '" + input.name +
                         "', which the model needs");
      }
      std::erase(unknown, input.name);
      if (isTrainingOnly(input))
        continue;
      Fed entry{&input, file.read(input.name)};
      check(path, entry, firstName);
      fed.push_back(std::move(entry));
    }
    for (const std::string &name : manifest.unread)
      std::erase(unknown, name); // of the model, but nothing reads it
    if (!unknown.empty())
      throw InputError(path + ": the model has no input '" + unknown.front() +
                       "', it has " + known +
                       "; one that data.inputs makes up is no input of the "
                       "program: compile with data.inputs." +
                       unknown.front() + " = \"" + unknown.front() + "\"");
    if (samples < 0)
      samples = manifest.samplesPerMicrobatch();
  }

  /// Returns the samples that one call of `forward` computes, from sample
  /// `begin` on, padded with zeros. An input without samples is returned whole.
  Array slice(const Fed &entry, int64_t begin) const {
    const ManifestInput &input = *entry.input;
    if (input.batchDim < 0)
      return entry.array;
    Array part = makeArray(entry.array.dtype, input.shape);
    copySlices(entry.array, begin, part, 0,
               std::min(input.shape[input.batchDim], samples - begin),
               input.batchDim, "input '" + input.name + "'");
    return part;
  }

  std::vector<Fed> fed;
  int64_t samples = -1;

private:
  void check(const std::string &path, const Fed &entry,
             std::string &firstName) {
    const ManifestInput &input = *entry.input;
    std::string label = path + ", array '" + input.name + "'";
    std::vector<int64_t> want = input.shape;
    const int64_t dim = input.batchDim;
    if (dim >= 0 && entry.array.shape.size() == want.size()) {
      int64_t given = entry.array.shape[dim];
      if (samples < 0) {
        samples = given;
        firstName = input.name;
      }
      if (given != samples)
        throw InputError(label + ": has " + std::to_string(given) +
                         " samples in dimension " + std::to_string(dim) +
                         ", but '" + firstName + "' has " +
                         std::to_string(samples));
      want[dim] = samples;
    }
    if (entry.array.shape != want || samples == 0)
      throw InputError(label + ": has shape " +
                       shapeToString(entry.array.shape) + ", expected " +
                       shapeToString(input.shape) +
                       (dim >= 0 ? " (any number of samples in dimension " +
                                       std::to_string(dim) + ")"
                                 : ""));
    if (isFloat(entry.array.dtype) != isFloat(input.dtype))
      throw InputError(label + ": has element type " + entry.array.dtype +
                       ", expected " + input.dtype);
    checkVocabulary(input, entry.array, label,
                    input.role == InputRole::Labels ? &ignoreIndex : nullptr);
  }

  const int64_t ignoreIndex;
};

} // namespace

/// Refuses a number of samples that differs from the call's batch if an output
/// depends on all samples of a call. Padding with zeros, or several calls,
/// would change such outputs.
static void checkWholeCalls(const Manifest &manifest, const Inputs &inputs,
                            const std::string &path) {
  const int64_t perCall = manifest.samplesPerMicrobatch();
  for (const ManifestOutput &output : manifest.outputs)
    if (output.wholeCall && inputs.samples != perCall)
      throw InputError(path + ": holds " + std::to_string(inputs.samples) +
                       " samples, but output '" + output.name + "' of shape " +
                       shapeToString(output.shape) +
                       " is computed from all samples of a call together, and "
                       "a call takes " +
                       std::to_string(perCall) +
                       "; compile for that many (--set dims.batch=" +
                       std::to_string(inputs.samples) + ")");
}

void infer(const Manifest &manifest, const InferOptions &options,
           const ExecutorFactory &start) {
  Settings settings = settingsOf(manifest);
  checkOutputPath(options.outputs);
  refuseToReplace(options.outputs, {options.inputs});
  refuseOtherKind(options.outputs, "PK", "an .npz file");
  Inputs inputs(manifest, options.inputs, settings.ignoreIndex);
  checkWholeCalls(manifest, inputs, options.inputs);
  if (options.weights.empty())
    checkInitialValues(manifest);
  else
    checkWeights(options.weights, manifest);

  std::unique_ptr<StepExecutor> executor = start();
  if (!executor->hasAction("forward") || manifest.outputs.empty())
    throw InputError("the program has no action 'forward'; compile the model "
                     "again");
  Feeder feeder(manifest, *executor, settings.ignoreIndex);
  if (options.weights.empty())
    loadInitialValues(manifest, *executor, settings.seed);
  else
    loadWeights(options.weights, manifest, *executor, settings.seed);

  const int64_t perMicrobatch = manifest.samplesPerMicrobatch();
  NamedArrays results;
  for (const ManifestOutput &output : manifest.outputs) {
    std::vector<int64_t> shape = output.shape;
    if (output.batchDim >= 0)
      shape[output.batchDim] = inputs.samples;
    results.emplace_back(output.name, makeArray(output.dtype, shape));
  }
  for (int64_t begin = 0; begin < inputs.samples; begin += perMicrobatch) {
    for (const Fed &entry : inputs.fed)
      feeder.scatter(*entry.input, inputs.slice(entry, begin));
    executor->run("forward");
    for (size_t i = 0; i < results.size(); ++i) {
      const ManifestOutput &output = manifest.outputs[i];
      Array part = executor->gather(output.buffer, output.dtype);
      Array &whole = results[i].second;
      if (output.batchDim < 0) {
        if (part.shape != whole.shape)
          throw InputError(
              "output '" + output.name + "' has shape " +
              shapeToString(whole.shape) + ", but program.bin has " +
              shapeToString(part.shape) + "; compile the model again");
        whole = std::move(part);
        continue;
      }
      copySlices(part, 0, whole, begin,
                 std::min(perMicrobatch, inputs.samples - begin),
                 output.batchDim, "output '" + output.name + "'");
    }
  }
  NamedViews views;
  for (const auto &[name, array] : results)
    views.emplace_back(name, array);
  writeNpz(options.outputs, views);
  for (const auto &[name, array] : results)
    printEscaped(stdout, "%s: %s %s\n", name.c_str(), array.dtype.c_str(),
                 shapeToString(array.shape).c_str());
}

} // namespace cleave
