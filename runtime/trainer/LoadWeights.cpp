// Loads weights from a checkpoint or a .safetensors file instead of the initial
// values that the model gives.

#include "CheckpointFiles.h"
#include "LoadTensor.h"
#include "cleave/io/Error.h"
#include "cleave/io/Input.h"
#include "cleave/io/Nesting.h"
#include "cleave/io/WeightNames.h"
#include "cleave/trainer/Checkpoint.h"

#include <nlohmann/json.hpp>

#include <cstring>
#include <filesystem>
#include <set>

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace cleave {

/// Returns the value of a key, or null if `json` is no object with this key.
static const Json *memberOf(const Json &json, const std::string &key) {
  auto found = json.is_object() ? json.find(key) : json.end();
  return found == json.end() ? nullptr : &*found;
}

/// Checks the digest of a file if the file is in the folder of a checkpoint,
/// and state.json records the digest.
static void checkRecorded(const fs::path &file) {
  std::string text, ignored;
  readInput((file.parent_path() / "state.json").string(), text, ignored);
  const Json state = nestsTooDeep(text) ? Json(Json::value_t::discarded)
                                        : Json::parse(text, nullptr, false);
  const Json *digests = memberOf(state, "digests");
  const Json *digest =
      digests ? memberOf(*digests, file.filename().string()) : nullptr;
  if (digest && digest->is_string())
    checkDigest(file.string(), digest->get<std::string>(),
                "give another checkpoint, or a copy of the file outside of "
                "this folder if the change is meant");
}

std::string weightsFileOf(const std::string &path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    if (fs::exists(path, ignored))
      checkRecorded(path);
    return path;
  }
  if (!fs::exists(fs::path(path) / "state.json", ignored))
    if (std::string newest = newestOfRun(path); !newest.empty())
      return (fs::path(newest) / modelFile).string();
  readCheckpointState(path); // whole, and what was written
  return (fs::path(path) / modelFile).string();
}

std::map<std::string, std::vector<int64_t>>
shapesInCheckpoint(const std::string &path) {
  SafetensorsReader file((fs::path(path) / modelFile).string());
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const std::string &name : file.names())
    shapes[name] = file.find(name)->shape;
  return shapes;
}

/// Tied tensors are one tensor of the program, but a file may store a copy
/// under each of its names. Returns the names of two copies that differ, for a
/// message, or "" if all copies are equal.
static std::string whereTiesDiffer(const SafetensorsReader &file,
                                   const ManifestTensor &tensor) {
  const ArrayView *first = nullptr;
  std::string firstName;
  std::vector<std::string> names = {tensor.name};
  names.insert(names.end(), tensor.aliases.begin(), tensor.aliases.end());
  for (const std::string &name : names) {
    const ArrayView *view = file.find(name);
    if (!view)
      continue;
    if (!first) {
      first = view;
      firstName = name;
    } else if (view->dtype == first->dtype && view->shape == first->shape &&
               std::memcmp(view->data, first->data, view->byteSize())) {
      return "'" + firstName + "' and '" + name + "'";
    }
  }
  return "";
}

void checkWeights(const std::string &path, const Manifest &manifest) {
  const std::string source = weightsFileOf(path);
  SafetensorsReader file(source);
  std::vector<WantedTensor> wanted;
  std::string differing;
  for (const ManifestTensor &tensor : manifest.tensors) {
    if (!isSaved(tensor))
      continue;
    std::vector<int64_t> shape = tensor.shape;
    if (!tensor.parts.empty())
      shape.erase(shape.begin());
    for (const std::string &name : fileNamesOf(tensor))
      wanted.push_back(
          {name,
           tensor.parts.empty() ? tensor.aliases : std::vector<std::string>(),
           shape, isFloat(tensor.dtype)});
    if (std::string found = whereTiesDiffer(file, tensor); !found.empty())
      differing += (differing.empty() ? "" : "; ") + found;
  }
  requireTensors(source, file, wanted, "model '" + manifest.model + "'");
  if (!differing.empty())
    throw InputError(source +
                     ": tensors that the model ties hold different "
                     "values: " +
                     differing);
}

void loadWeights(const std::string &path, const Manifest &manifest,
                 StepExecutor &executor, uint64_t seed) {
  const std::string source = weightsFileOf(path);
  SafetensorsReader file(source);
  WeightFiles files(manifest);
  initializeState(manifest, files, executor, seed);
  for (const ManifestTensor &tensor : manifest.tensors) {
    if (!isSaved(tensor)) {
      loadInitialValue(tensor, files, executor, seed);
      continue;
    }
    loadTensor(source, file, tensor, "", tensor.shape, tensor.buffer, executor);
    if (const ManifestState *master = masterOf(manifest, tensor))
      loadTensor(source, file, tensor, "", tensor.shape, master->buffer,
                 executor);
  }
  file.checkWhole();
  files.checkWhole();
}

} // namespace cleave
