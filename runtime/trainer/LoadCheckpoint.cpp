//===- LoadCheckpoint.cpp - what a run begins with ------------------------===//
#include "CheckpointFiles.h"
#include "LoadTensor.h"
#include "cleave/io/Error.h"
#include "cleave/io/Escape.h"
#include "cleave/io/Safetensors.h"
#include "cleave/io/Weights.h"
#include "cleave/trainer/Checkpoint.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <set>

namespace fs = std::filesystem;

namespace cleave {

/// Returns the parameters with optimizer state in the checkpoint. A parameter
/// that was frozen when the checkpoint was saved has none, and starts with the
/// initial state.
static std::set<std::string> knownParameters(const SafetensorsReader &file) {
  std::set<std::string> known;
  for (const std::string &name : file.names())
    known.insert(name.substr(0, name.rfind('.')));
  return known;
}

static bool isFresh(const ManifestState &item,
                    const std::set<std::string> &known) {
  return item.init == "zeros" && !item.parameter.empty() &&
         !known.count(item.parameter);
}

/// Reports the optimizer state that is dropped because its parameter is frozen
/// now, for users who train the parameter again later.
static void sayWhatIsLeftOut(const std::string &path,
                             std::set<std::string> known,
                             const Manifest &manifest) {
  for (const ManifestState &item : manifest.state) {
    if (const ManifestTensor *tensor = manifest.tensor(item.parameter))
      for (const std::string &name : fileNamesOf(*tensor))
        known.erase(name);
    std::string name = stateName(item);
    known.erase(name.substr(0, name.rfind('.')));
  }
  // All remaining entries belong to parameters that are frozen now. Checkpoints
  // of other models were refused before.
  if (!known.empty())
    printEscaped(
        stdout,
        "%s: the optimizer state of %lld %s not train any more is left "
        "out of the next checkpoints\n",
        path.c_str(), static_cast<long long>(known.size()),
        known.size() == 1 ? "parameter that does" : "parameters that do");
}

/// Loads AdamW's step counts. Parameters that began to train together share one
/// count.
static void loadCounts(const std::string &path, const CheckpointState &state,
                       const SafetensorsReader &file,
                       const std::set<std::string> &known,
                       const Manifest &manifest, StepExecutor &executor) {
  std::map<std::string, std::pair<std::string, int64_t>> counts; // by buffer
  for (const ManifestState &item : manifest.state) {
    const ManifestTensor *tensor = manifest.tensor(item.parameter);
    if (!isCount(item) || !tensor)
      continue;
    for (const std::string &name : fileNamesOf(*tensor)) {
      int64_t count = 0;
      if (const ArrayView *view = file.find(name + "." + item.slot)) {
        if (!isInteger(view->dtype) || view->elements() != 1)
          throw InputError(path + ": tensor '" + name + "." + item.slot +
                           "' is " + view->dtype + shapeToString(view->shape) +
                           ", expected an integer");
        count = integerAt(view->dtype, view->data, 0);
      } else if (known.count(name)) {
        count = state.updates; // of earlier versions
      }
      auto [entry, isNew] = counts.try_emplace(item.buffer, name, count);
      if (!isNew && entry->second.second != count)
        throw InputError(
            path + ": '" + entry->second.first + "' has had " +
            std::to_string(entry->second.second) + " updates and '" + name +
            "' " + std::to_string(count) +
            ", but this program counts them together; `cleave train --resume` "
            "compiles one that does not (train.began)");
    }
  }
  for (const auto &[buffer, entry] : counts) {
    Array value = makeArray("i64", {});
    *value.as<int64_t>() = entry.second;
    executor.scatter(buffer, value);
  }
}

void loadCheckpoint(const std::string &path, const CheckpointState &state,
                    const Manifest &manifest, StepExecutor &executor) {
  std::string model = (fs::path(path) / modelFile).string();
  std::string optimizer = (fs::path(path) / optimizerFile).string();
  SafetensorsReader modelReader(model), optimizerReader(optimizer);
  WeightFiles files(manifest);
  std::vector<std::function<void()>> masters;
  for (const ManifestTensor &tensor : manifest.tensors) {
    if (isSaved(tensor)) {
      loadTensor(model, modelReader, tensor, "", tensor.shape, tensor.buffer,
                 executor);
      if (const ManifestState *master = masterOf(manifest, tensor))
        masters.push_back([&, master] {
          loadTensor(model, modelReader, tensor, "", tensor.shape,
                     master->buffer, executor);
        });
    } else
      loadInitialValue(tensor, files, executor, 0);
  }
  std::set<std::string> known = knownParameters(optimizerReader);
  sayWhatIsLeftOut(path, known, manifest);
  std::set<std::string> fresh; // parameters without optimizer state
  for (const ManifestState &item : manifest.state)
    if (isFresh(item, known) && !isCount(item))
      fresh.insert(item.parameter);
  if (!fresh.empty()) {
    printEscaped(stdout,
                 "%s: has no optimizer state of %lld trained %s; it starts "
                 "anew\n",
                 path.c_str(), static_cast<long long>(fresh.size()),
                 fresh.size() == 1 ? "parameter" : "parameters");
    initializeState(manifest, files, executor, 0);
  }
  for (const ManifestState &item : manifest.state)
    if (const ManifestTensor *tensor = manifest.tensor(item.parameter);
        isFresh(item, known) || item.init == "parameter" ||
        (tensor && isCount(item)))
      continue;
    else if (tensor)
      loadTensor(optimizer, optimizerReader, *tensor, item.slot,
                 executor.need(item.buffer).shape, item.buffer, executor);
    else
      loadBuffer(optimizer + ": tensor '" + stateName(item) + "'",
                 optimizerReader.find(stateName(item)),
                 executor.need(item.buffer).shape, item.buffer, executor);
  loadCounts(path, state, optimizerReader, known, manifest, executor);
  // Master copies of parameters, which have a higher precision, are loaded
  // last, because initializeState() above sets all of them to the initial
  // values.
  for (auto &load : masters)
    load();
  modelReader.checkWhole();
  optimizerReader.checkWhole();
  files.checkWhole();
}

//===----------------------------------------------------------------------===//
// Starting
//===----------------------------------------------------------------------===//

void loadInitialValues(const Manifest &manifest, StepExecutor &executor,
                       uint64_t seed) {
  WeightFiles files(manifest);
  for (const ManifestTensor &tensor : manifest.tensors)
    loadInitialValue(tensor, files, executor, seed);
  initializeState(manifest, files, executor, seed);
  files.checkWhole();
}

void checkInitialValues(const Manifest &manifest) {
  WeightFiles files(manifest);
  for (const ManifestTensor &tensor : manifest.tensors)
    if (tensor.weight) {
      files.view(tensor);
    } else {
      for (size_t i = 0; i < tensor.parts.size(); ++i)
        if (tensor.parts[i].weight)
          files.view(partOf(tensor, i));
    }
}

} // namespace cleave
