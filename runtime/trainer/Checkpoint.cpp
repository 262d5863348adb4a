//===- Checkpoint.cpp - saving and resuming -------------------------------===//
#include "cleave/trainer/Checkpoint.h"
#include "CheckpointFiles.h"
#include "cleave/io/Digest.h"
#include "cleave/io/Error.h"
#include "cleave/io/Escape.h"
#include "cleave/io/File.h"
#include "cleave/io/Input.h"
#include "cleave/io/Nesting.h"
#include "cleave/io/Safetensors.h"
#include "cleave/io/Temporary.h"

#include "cleave/io/JsonText.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <set>
#include <sstream>
#include <sys/stat.h>
#include <unistd.h>

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace cleave {

std::string checkpointName(int64_t step) {
  char name[64];
  std::snprintf(name, sizeof name, "checkpoint-%06lld",
                static_cast<long long>(step));
  return name;
}

/// The digest of a checkpoint's file.
static std::string digestOfFile(const fs::path &path) {
  MappedFile file(path.string());
  return digestOfPieces(
      {reinterpret_cast<const char *>(file.data()), file.size()});
}

void checkDigest(const std::string &file, const std::string &expected,
                 const std::string &advice) {
  std::string found = digestOfFile(file);
  if (found != expected)
    throw InputError(file + ": is not what was written (its checksum is " +
                     found + ", expected " + expected + "); " + advice);
}

//===----------------------------------------------------------------------===//
// Saving
//===----------------------------------------------------------------------===//

namespace {

/// The tensors that a checkpoint file contains. For each tensor: the program's
/// buffer that holds it, as a whole or as one of several slices.
class BufferList {
public:
  /// Adds the program's buffer that holds a tensor (`slot` is empty) or the
  /// part `slot` of its optimizer state.
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

  /// Writes the buffers to a file, gathering one at a time.
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

/// Parses JSON that another JSON document holds as a string.
static Json parsed(const std::string &json) {
  return Json::parse(json, nullptr, false).is_discarded()
             ? Json(nullptr)
             : Json::parse(json, nullptr, false);
}

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
      if (const ManifestTensor *tensor = manifest.tensor(item.parameter);
          tensor && isCount(item))
        for (const std::string &name : fileNamesOf(*tensor))
          optimizer.add({name + "." + item.slot, buffer.dtype, {}},
                        item.buffer);
      else if (tensor)
        optimizer.add(*tensor, item.slot, item.buffer, buffer.dtype,
                      buffer.shape);
      else
        optimizer.add({stateName(item), buffer.dtype, buffer.shape},
                      item.buffer);
    }
    optimizer.write((path / optimizerFile).string(), executor);

    Json mesh = Json::array(), stretches = Json::array();
    for (const auto &[axis, size] : manifest.mesh)
      mesh.push_back(Json::array({axis, size}));
    for (const Stretch &part : state.stretches)
      stretches.push_back({{"step", part.step},
                           {"sample", part.sample},
                           {"batch", part.batch}});
    Json json = {{"format", "cleave-checkpoint"},
                 {"version", 2},
                 {"model", manifest.model},
                 {"fingerprint", manifest.fingerprint},
                 {"graph", manifest.graph},
                 {"bound", manifest.bound},
                 {"step", state.step},
                 {"next_sample", state.nextSample},
                 {"stretches", stretches},
                 {"left_out", state.leftOut},
                 {"optimizer", state.optimizer},
                 {"seed", state.seed},
                 {"data_seed", state.dataSeed},
                 {"batch", manifest.batch},
                 {"mesh", mesh},
                 {"data", parsed(state.dataIdentity)},
                 {"eval_data", parsed(state.evalIdentity)},
                 {"split", parsed(state.split)},
                 {"config", parsed(state.config)},
                 {"files",
                  {{modelFile, fs::file_size(path / modelFile)},
                   {optimizerFile, fs::file_size(path / optimizerFile)}}},
                 {"digests",
                  {{modelFile, digestOfFile(path / modelFile)},
                   {optimizerFile, digestOfFile(path / optimizerFile)}}}};
    OutputFile file((path / "state.json").string());
    file.write(sealJson(jsonText(json, 1) + "\n"));
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

/// Checks sizes and digests of the files that state.json lists.
static void checkFiles(const std::string &path, const Json &json,
                       bool checksDigests) {
  std::error_code ignored;
  for (const auto &[name, size] : json.at("files").items()) {
    fs::path part = fs::path(path) / fs::path(name).filename();
    uint64_t expected = size.get<uint64_t>();
    uint64_t found = fs::exists(part, ignored) ? fs::file_size(part) : 0;
    if (found != expected)
      throw InputError(part.string() + ": the checkpoint is torn: expected " +
                       std::to_string(expected) + " bytes, found " +
                       std::to_string(found));
  }
  if (!checksDigests)
    return;
  const Json digests = json.value("digests", Json::object());
  if (json.at("version") != 1) // earlier ones have none
    for (const auto &[name, size] : json.at("files").items())
      if (!digests.contains(name))
        throw InputError((fs::path(path) / "state.json").string() +
                         ": has no digest of " + name +
                         "; resume from another checkpoint");
  for (const auto &[name, digest] : digests.items()) {
    fs::path part = fs::path(path) / fs::path(name).filename();
    checkDigest(part.string(), digest.get<std::string>(),
                "resume from another checkpoint");
  }
}

/// Throws InputError if the digest in a file does not fit its text, because
/// then the file was changed after it was written. Files of version 1 have no
/// digest and are accepted.
static void checkSeal(const std::string &file, const std::string &text,
                      const Json &json) {
  const Json version =
      json.is_object() ? json.value("version", Json()) : Json();
  const bool isOld = version == 1 && !json.contains("digest");
  if (!isOld && version.is_number() && !isSealed(text))
    throw InputError(file + ": is not what was written (its digest " +
                     (json.contains("digest") ? "does not fit" : "is missing") +
                     "); resume from another checkpoint");
}

static Json readStateFile(const std::string &path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored))
    throw InputError(path + ": is no checkpoint folder");
  std::string file = (fs::path(path) / "state.json").string();
  if (!fs::exists(file, ignored)) {
    throw InputError(
        path + (checkpointsOf(path).empty()
                    ? ": is no whole checkpoint: state.json is missing"
                    : ": is the folder of a run; give one of its checkpoints"));
  }
  std::string text = readTextFile(file);
  Json json = nestsTooDeep(text) ? Json(Json::value_t::discarded)
                                 : Json::parse(text, nullptr, false);
  checkSeal(file, text, json);
  return json;
}

/// Refuses a state whose position in the data (nextSample) does not follow from
/// its number of steps and batch sizes.
static void checkPosition(const std::string &file,
                          const CheckpointState &state) {
  // This limit on both numbers keeps position + batch within an int64_t.
  constexpr int64_t most = int64_t(1) << 62;
  if (state.step < 0 || state.nextSample < 0 || state.step > most ||
      state.nextSample > most)
    throw InputError(file + ": step " + std::to_string(state.step) +
                     " and next_sample " + std::to_string(state.nextSample) +
                     " are no position of a run");
  for (size_t i = 0; i < state.stretches.size(); ++i) {
    const Stretch &part = state.stretches[i];
    const bool isLast = i + 1 == state.stretches.size();
    const int64_t step = isLast ? state.step : state.stretches[i + 1].step;
    const int64_t found =
        isLast ? state.nextSample : state.stretches[i + 1].sample;
    int64_t samples = 0, expected = 0;
    if (part.batch < 1 || part.step < 0 || part.sample < 0 ||
        part.step > step ||
        __builtin_mul_overflow(step - part.step, part.batch, &samples) ||
        __builtin_add_overflow(part.sample, samples, &expected) ||
        expected != found)
      throw InputError(
          file + ": sample " + std::to_string(found) + " of step " +
          std::to_string(step) + " is not where " + std::to_string(part.batch) +
          " samples a step lead to from sample " + std::to_string(part.sample) +
          " of step " + std::to_string(part.step) +
          "; resume from another checkpoint");
  }
}

static CheckpointState stateOf(const std::string &path, const Json &json,
                               const Manifest *manifest,
                               bool checksDigests = true) {
  std::string file = (fs::path(path) / "state.json").string();
  CheckpointState state;
  auto integerOf = [&](const Json &value) {
    if (!value.is_number_integer() || value > INT64_MAX)
      throw InputError(file + ": the checkpoint is torn: " + jsonText(value) +
                       " is no 64-bit integer");
    return value.get<int64_t>();
  };
  auto textOf = [&](const char *key) {
    auto found = json.find(key);
    return found == json.end() || found->is_null() ? "" : found->dump();
  };
  try {
    if (json.at("format") != "cleave-checkpoint" ||
        (json.at("version") != 1 && json.at("version") != 2))
      throw InputError(file + ": not a checkpoint of this version");
    auto fingerprint = json.at("fingerprint").get<std::string>();
    if (manifest && fingerprint != manifest->fingerprint)
      throw InputError(path + ": is a checkpoint of another model ('" +
                       json.at("model").get<std::string>() + "', fingerprint " +
                       fingerprint + "; expected '" + manifest->model +
                       "', fingerprint " + manifest->fingerprint + ")");
    state.model = json.value("model", std::string());
    state.graph = json.value("graph", std::string());
    state.bound = json.value("bound", state.bound);
    state.step = integerOf(json.at("step"));
    state.updates =
        json.contains("updates") ? integerOf(json["updates"]) : state.step;
    state.nextSample = integerOf(json.at("next_sample"));
    state.leftOut = json.contains("left_out") ? integerOf(json["left_out"]) : 0;
    state.seed = json.at("seed").get<uint64_t>();
    state.dataSeed = json.at("data_seed").get<uint64_t>();
    state.optimizer = json.value("optimizer", std::string());
    state.config = textOf("config");
    state.dataIdentity = textOf("data");
    state.evalIdentity = textOf("eval_data");
    state.split = textOf("split");
    for (const Json &part : json.value("stretches", Json::array()))
      state.stretches.push_back({integerOf(part.at("step")),
                                 integerOf(part.at("sample")),
                                 integerOf(part.at("batch"))});
    if (json.at("version") != 1 && state.stretches.empty())
      throw InputError(file + ": has no stretches");
    checkPosition(file, state);
    checkFiles(path, json, checksDigests);
  } catch (const Json::exception &) {
    throw InputError(file + ": the checkpoint is torn: not the state of a run");
  }
  return state;
}

CheckpointState readCheckpointState(const std::string &path,
                                    bool checksDigests) {
  return stateOf(path, readStateFile(path), nullptr, checksDigests);
}

CheckpointState readCheckpointState(const std::string &path,
                                    const Manifest &manifest) {
  return stateOf(path, readStateFile(path), &manifest);
}

std::string whatIsTorn(const std::string &path) {
  try {
    readCheckpointState(path);
    return "";
  } catch (const Error &error) {
    return error.what();
  }
}

//===----------------------------------------------------------------------===//
// The checkpoints of a run
//===----------------------------------------------------------------------===//

static constexpr const char *latestFile = "latest";

static std::string nameOf(const std::string &checkpoint) {
  fs::path name = fs::path(checkpoint).lexically_normal();
  if (!name.has_filename()) // it ends with a slash
    name = name.parent_path();
  return name.filename().string();
}

void nameLatest(const std::string &run, const std::string &checkpoint,
                const std::string &before) {
  const std::string path = (fs::path(run) / latestFile).string();
  // If `path` is neither a file nor a folder (for example a symbolic link), it
  // is removed first.
  struct stat info{};
  if (::lstat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) &&
      !S_ISDIR(info.st_mode))
    ::unlink(path.c_str());
  std::string text = nameOf(checkpoint) + "\n";
  if (!before.empty())
    text += nameOf(before) + "\n";
  try {
    writeFileAtomically(path, text);
  } catch (const Error &error) {
    printEscaped(stderr, "cleave: warning: %s\n", error.what());
  }
}

std::vector<CheckpointEntry> checkpointsOf(const std::string &run) {
  std::vector<CheckpointEntry> found;
  std::error_code error;
  std::string latest, ignored, first, second;
  readInput((fs::path(run) / latestFile).string(), latest, ignored);
  std::istringstream(latest) >> first >> second;
  for (const fs::directory_entry &entry : fs::directory_iterator(run, error)) {
    std::string name = entry.path().filename().string();
    constexpr std::string_view prefix = "checkpoint-";
    if (!name.starts_with(prefix) || name.size() == prefix.size() ||
        name.find_first_not_of("0123456789", prefix.size()) !=
            std::string::npos ||
        name.size() > prefix.size() + 18)
      continue;
    // Which checkpoint is newest is decided by modification time and not by
    // step, because a run that was resumed from an earlier step writes its
    // checkpoints after those of later steps. Names in the file "latest" have
    // precedence.
    fs::file_time_type time =
        fs::last_write_time(entry.path() / "state.json", error);
    if (error)
      time = fs::file_time_type::min();
    found.push_back(
        {name == first ? 2 : name == second, time.time_since_epoch().count(),
         std::stoll(name.substr(prefix.size())), entry.path().string()});
  }
  return found;
}

/// Throws if a disk error or missing permissions prevent reading a checkpoint.
/// The checkpoint may be undamaged, so it must not be skipped like a damaged
/// one.
static void needReadable(const std::string &checkpoint) {
  std::error_code error;
  fs::directory_iterator files(checkpoint, error), end;
  for (; !error && files != end; files.increment(error)) {
    int descriptor =
        ::open(files->path().c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0 && errno != ENOENT)
      throw InputError(files->path().string() +
                       ": cannot be read: " + std::strerror(errno) +
                       "; whether the checkpoint is whole cannot be told");
    if (descriptor >= 0)
      ::close(descriptor);
  }
  if (error && error != std::errc::no_such_file_or_directory)
    throw InputError(checkpoint + ": cannot be read: " + error.message() +
                     "; whether the checkpoint is whole cannot be told");
}

std::string newestWhole(std::vector<CheckpointEntry> entries) {
  std::sort(entries.begin(), entries.end());
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    std::string torn = whatIsTorn(entry->path);
    if (torn.empty())
      return entry->path;
    needReadable(entry->path);
    printEscaped(stderr, "cleave: warning: %s; it is passed over\n",
                 torn.c_str());
  }
  return "";
}

std::string newestOfRun(const std::string &run) {
  std::vector<CheckpointEntry> found = checkpointsOf(run);
  std::string newest = newestWhole(found);
  if (newest.empty() && !found.empty())
    throw InputError(run + ": none of its " + std::to_string(found.size()) +
                     " checkpoints is whole; give another run");
  return newest;
}

void removeOldCheckpoints(const std::string &run, int64_t keep) {
  if (keep <= 0)
    return;
  std::vector<CheckpointEntry> found = checkpointsOf(run);
  std::sort(found.rbegin(), found.rend());
  std::error_code ignored;
  for (size_t i = keep; i < found.size(); ++i) {
    // The folder is renamed before it is removed, so that a folder with this
    // name is always complete.
    fs::path path(found[i].path);
    fs::path gone = temporaryNameOf(path.string(), "gone");
    fs::remove_all(gone, ignored);
    fs::rename(path, gone, ignored);
    if (!ignored)
      fs::remove_all(gone, ignored);
  }
}

} // namespace cleave
