//===- Checkpoint.cpp - saving and resuming
//----------------------------------===//
#include "cleave/trainer/Checkpoint.h"
#include "cleave/io/Error.h"
#include "cleave/io/File.h"
#include "cleave/io/Safetensors.h"
#include "cleave/io/Weights.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <set>

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace cleave {

static constexpr const char *modelFile = "model.safetensors";
static constexpr const char *optimizerFile = "optimizer.safetensors";

std::string checkpointName(int64_t step) {
  char name[64];
  std::snprintf(name, sizeof name, "checkpoint-%06lld",
                static_cast<long long>(step));
  return name;
}

/// "wte.weight.exp_avg".
static std::string stateName(const ManifestState &state) {
  return state.parameter.empty() ? state.slot
                                 : state.parameter + "." + state.slot;
}

/// Where the optimizer keeps the parameter itself in more digits; null where it
/// does not.
static const ManifestState *masterOf(const Manifest &manifest,
                                     const ManifestTensor &tensor) {
  for (const ManifestState &item : manifest.state)
    if (item.init == "parameter" && item.parameter == tensor.name)
      return &item;
  return nullptr;
}

static bool isSaved(const ManifestTensor &tensor) {
  return tensor.kind != "constant";
}

/// Of what a file of a checkpoint holds.
static std::string digestOfFile(const fs::path &path) {
  MappedFile file(path.string());
  return digestOfPieces(
      {reinterpret_cast<const char *>(file.data()), file.size()});
}

//===----------------------------------------------------------------------===//
// Saving
//===----------------------------------------------------------------------===//

namespace {

/// The tensors of a file, and the buffers that they are, or are slices of.
class BufferList {
public:
  /// `slot` follows the name; empty for the parameter itself.
  void add(const ManifestTensor &tensor, const std::string &slot,
           const std::string &buffer, const std::string &dtype,
           const std::vector<int64_t> &shape) {
    std::string suffix = slot.empty() ? "" : "." + slot;
    if (tensor.parts.empty())
      return add({tensor.name + suffix, dtype, shape}, buffer, 1, 0);
    std::vector<int64_t> part(shape.begin() + 1, shape.end());
    size_t count = tensor.parts.size();
    for (size_t i = 0; i < count; ++i)
      add({tensor.parts[i].name + suffix, dtype, part}, buffer, count, i);
  }
  void add(SafetensorsEntry entry, const std::string &buffer, size_t slices = 1,
           size_t index = 0) {
    entries.push_back(std::move(entry));
    sources.push_back({buffer, slices, index});
  }

  /// Gathers the buffers one by one into a file, each once.
  void write(const std::string &path, StepExecutor &executor) const {
    Array whole;
    std::string gathered;
    writeSafetensors(path, entries, [&](size_t i, std::vector<std::byte> &out) {
      const Source &source = sources[i];
      if (source.index == 0 || gathered != source.buffer)
        whole = executor.gather(source.buffer, entries[i].dtype);
      gathered = source.buffer;
      if (whole.bytes.size() != out.size() * source.slices)
        throw InputError(
            "buffer '" + source.buffer + "' has shape " +
            shapeToString(whole.shape) + ", expected " +
            (source.slices > 1 ? std::to_string(source.slices) + " times "
                               : std::string()) +
            shapeToString(entries[i].shape) + "; compile the model again");
      if (source.slices == 1) {
        out = std::move(whole.bytes);
        return;
      }
      auto begin = whole.bytes.begin() + source.index * out.size();
      std::copy(begin, begin + out.size(), out.begin());
    });
  }

private:
  struct Source {
    std::string buffer;
    size_t slices, index;
  };
  std::vector<SafetensorsEntry> entries;
  std::vector<Source> sources;
};

} // namespace

std::string saveCheckpoint(const std::string &folder, const Manifest &manifest,
                           StepExecutor &executor,
                           const CheckpointState &state) {
  std::string target = (fs::path(folder) / checkpointName(state.step)).string();
  try {
    AtomicFolder writing(target);
    fs::path path(writing.path());
    BufferList model, optimizer;
    for (const ManifestTensor &tensor : manifest.tensors)
      if (const ManifestState *master = masterOf(manifest, tensor))
        model.add(tensor, "", master->buffer,
                  executor.need(master->buffer).dtype, tensor.shape);
      else if (isSaved(tensor))
        model.add(tensor, "", tensor.buffer, tensor.dtype, tensor.shape);
    model.write((path / modelFile).string(), executor);
    for (const ManifestState &item : manifest.state) {
      if (item.init == "parameter") // is the model's
        continue;
      const BufferInfo &buffer = executor.need(item.buffer);
      if (const ManifestTensor *tensor = manifest.tensor(item.parameter))
        optimizer.add(*tensor, item.slot, item.buffer, buffer.dtype,
                      buffer.shape);
      else
        optimizer.add({stateName(item), buffer.dtype, buffer.shape},
                      item.buffer);
    }
    optimizer.write((path / optimizerFile).string(), executor);

    Json mesh = Json::array();
    for (const auto &[axis, size] : manifest.mesh)
      mesh.push_back(Json::array({axis, size}));
    Json json = {{"format", "cleave-checkpoint"},
                 {"version", 1},
                 {"model", manifest.model},
                 {"fingerprint", manifest.fingerprint},
                 {"step", state.step},
                 {"updates", state.step * manifest.updatesPerStep},
                 {"next_sample", state.nextSample},
                 {"seed", state.seed},
                 {"data_seed", state.dataSeed},
                 {"batch", manifest.batch},
                 {"mesh", mesh},
                 {"files",
                  {{modelFile, fs::file_size(path / modelFile)},
                   {optimizerFile, fs::file_size(path / optimizerFile)}}},
                 {"digests",
                  {{modelFile, digestOfFile(path / modelFile)},
                   {optimizerFile, digestOfFile(path / optimizerFile)}}}};
    OutputFile file((path / "state.json").string());
    file.write(json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
    file.close();
    writing.commit();
  } catch (const RunError &error) {
    throw RunError(std::string(error.what()) + "; nothing of " + target +
                   " was kept");
  }
  return target;
}

//===----------------------------------------------------------------------===//
// Resuming
//===----------------------------------------------------------------------===//

CheckpointState readCheckpointState(const std::string &path,
                                    const Manifest &manifest) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored))
    throw InputError(path + ": is no checkpoint folder");
  std::string file = (fs::path(path) / "state.json").string();
  if (!fs::exists(file, ignored)) {
    std::string inside = latestCheckpoint(path);
    throw InputError(
        path +
        (inside.empty()
             ? ": is no whole checkpoint: state.json is missing"
             : ": is the folder of a run; its last checkpoint is " + inside));
  }
  Json json = Json::parse(readTextFile(file), nullptr, false);
  CheckpointState state;
  try {
    if (json.at("format") != "cleave-checkpoint" || json.at("version") != 1)
      throw InputError(file + ": not a checkpoint of this version");
    auto fingerprint = json.at("fingerprint").get<std::string>();
    if (fingerprint != manifest.fingerprint)
      throw InputError(path + ": is a checkpoint of another model ('" +
                       json.at("model").get<std::string>() + "', fingerprint " +
                       fingerprint + "; expected '" + manifest.model +
                       "', fingerprint " + manifest.fingerprint + ")");
    state.step = json.at("step").get<int64_t>();
    state.updates = json.value("updates", state.step);
    state.nextSample = json.at("next_sample").get<int64_t>();
    state.seed = json.at("seed").get<uint64_t>();
    state.dataSeed = json.at("data_seed").get<uint64_t>();
    if (state.step < 0 || state.nextSample < 0)
      throw InputError(file + ": has a negative step or sample");
    for (const auto &[name, size] : json.at("files").items()) {
      fs::path part = fs::path(path) / fs::path(name).filename();
      uint64_t expected = size.get<uint64_t>();
      uint64_t found = fs::exists(part, ignored) ? fs::file_size(part) : 0;
      if (found != expected)
        throw InputError(part.string() + ": the checkpoint is torn: expected " +
                         std::to_string(expected) + " bytes, found " +
                         std::to_string(found));
    }
    // Those of earlier versions have none.
    const Json digests = json.value("digests", Json::object());
    for (const auto &[name, digest] : digests.items()) {
      fs::path part = fs::path(path) / fs::path(name).filename();
      std::string found = digestOfFile(part);
      if (found != digest.get<std::string>())
        throw InputError(part.string() +
                         ": is not what was written (its checksum is " + found +
                         ", expected " + digest.get<std::string>() +
                         "); resume from another checkpoint");
    }
  } catch (const Json::exception &) {
    throw InputError(file + ": the checkpoint is torn: not the state of a run");
  }
  return state;
}

/// The tensor under its name or one of its aliases.
static const ArrayView *findTensor(const SafetensorsReader &file,
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

static void loadBuffer(const std::string &label, const ArrayView *view,
                       const std::vector<int64_t> &shape,
                       const std::string &buffer, StepExecutor &executor) {
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

/// A tensor, or a piece of state of it, from a file that holds the model's
/// tensors.
static void loadTensor(const std::string &path, const SafetensorsReader &file,
                       const ManifestTensor &tensor, const std::string &slot,
                       const std::vector<int64_t> &shape,
                       const std::string &buffer, StepExecutor &executor) {
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

/// Straight from the mapped file where nothing has to be converted, so that
/// starting needs no second copy of the largest tensor.
static void loadInitialValue(const ManifestTensor &tensor, WeightFiles &files,
                             StepExecutor &executor, uint64_t seed) {
  if (tensor.weight &&
      tensor.weight->dtype == executor.need(tensor.buffer).dtype) {
    ArrayView view = files.view(tensor);
    if (reinterpret_cast<uintptr_t>(view.data) % elementSize(view.dtype) == 0)
      return executor.scatter(tensor.buffer, view);
  }
  executor.scatter(tensor.buffer, initialValue(tensor, files, seed));
}

/// What the optimizer's state starts from.
static void initializeState(const Manifest &manifest, WeightFiles &files,
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
    // In the state's type, which has more digits than the tensor's.
    ManifestTensor tensor = *manifest.tensor(item.parameter);
    tensor.dtype = executor.need(item.buffer).dtype;
    executor.scatter(item.buffer, initialValue(tensor, files, seed));
  }
}

void loadCheckpoint(const std::string &path, const Manifest &manifest,
                    StepExecutor &executor) {
  std::string model = (fs::path(path) / modelFile).string();
  std::string optimizer = (fs::path(path) / optimizerFile).string();
  SafetensorsReader modelReader(model), optimizerReader(optimizer);
  WeightFiles files(manifest.weightsFolder);
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
  // A parameter that was frozen when the checkpoint was made has no state in
  // it, and starts with the initial one.
  std::set<std::string> known;
  for (const std::string &name : optimizerReader.names())
    known.insert(name.substr(0, name.rfind('.')));
  auto isFresh = [&](const ManifestState &item) {
    return item.init == "zeros" && !item.parameter.empty() &&
           !known.count(item.parameter);
  };
  int64_t fresh =
      std::count_if(manifest.state.begin(), manifest.state.end(), isFresh);
  if (fresh) {
    std::printf("%s: has no optimizer state of %lld trained tensors; it starts "
                "anew\n",
                path.c_str(), static_cast<long long>(fresh));
    initializeState(manifest, files, executor, 0);
  }
  for (const ManifestState &item : manifest.state)
    if (const ManifestTensor *tensor = manifest.tensor(item.parameter);
        isFresh(item) || item.init == "parameter")
      continue;
    else if (tensor)
      loadTensor(optimizer, optimizerReader, *tensor, item.slot,
                 executor.need(item.buffer).shape, item.buffer, executor);
    else
      loadBuffer(optimizer + ": tensor '" + stateName(item) + "'",
                 optimizerReader.find(stateName(item)),
                 executor.need(item.buffer).shape, item.buffer, executor);
  // After what starts anew.
  for (auto &load : masters)
    load();
}

//===----------------------------------------------------------------------===//
// Starting
//===----------------------------------------------------------------------===//

void loadInitialValues(const Manifest &manifest, StepExecutor &executor,
                       uint64_t seed) {
  WeightFiles files(manifest.weightsFolder);
  for (const ManifestTensor &tensor : manifest.tensors)
    loadInitialValue(tensor, files, executor, seed);
  initializeState(manifest, files, executor, seed);
}

void checkInitialValues(const Manifest &manifest) {
  WeightFiles files(manifest.weightsFolder);
  for (const ManifestTensor &tensor : manifest.tensors)
    if (tensor.weight) {
      files.view(tensor);
    } else {
      for (size_t i = 0; i < tensor.parts.size(); ++i)
        if (tensor.parts[i].weight)
          files.view(partOf(tensor, i));
    }
}

std::string latestCheckpoint(const std::string &run) {
  std::string best;
  int64_t bestStep = -1;
  std::error_code error;
  for (const fs::directory_entry &entry : fs::directory_iterator(run, error)) {
    std::string name = entry.path().filename().string();
    constexpr std::string_view prefix = "checkpoint-";
    if (!name.starts_with(prefix) || name.size() == prefix.size() ||
        name.find_first_not_of("0123456789", prefix.size()) !=
            std::string::npos ||
        name.size() > prefix.size() + 18)
      continue;
    int64_t step = std::stoll(name.substr(prefix.size()));
    if (step > bestStep) {
      bestStep = step;
      best = entry.path().string();
    }
  }
  return best;
}

} // namespace cleave
