//===- Resume.cpp - that a resumed run is the same run --------------------===//
#include "cleave/trainer/Resume.h"
#include "ResumeText.h"
#include "Toml.h"
#include "cleave/io/Digest.h"
#include "cleave/io/Error.h"
#include "cleave/io/File.h"
#include "cleave/io/Safetensors.h"
#include "cleave/trainer/KeyEffect.h"

#include "cleave/io/JsonText.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace cleave {

//===----------------------------------------------------------------------===//
// Which checkpoint
//===----------------------------------------------------------------------===//

/// Returns whether `name` is the name MODEL-N of a run of this model.
static bool isRunOf(const std::string &name, const std::string &model) {
  return name.size() > model.size() + 1 && name.starts_with(model + "-") &&
         name.find_first_not_of("0123456789", model.size() + 1) ==
             std::string::npos;
}

/// Returns the checkpoint at a path: the path itself, or the newest checkpoint
/// in the folder of a run.
static std::string checkpointAt(const std::string &path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored))
    throw InputError("--resume " + path +
                     ": does not exist; give a checkpoint's folder, a run's, "
                     "latest, or auto");
  if (fs::exists(fs::path(path) / "state.json", ignored))
    return path;
  std::string newest = newestOfRun(path);
  return newest.empty() ? path : newest;
}

std::string resolveResume(const std::string &resume, const std::string &out,
                          const std::string &model) {
  if (resume.empty())
    return resume;
  if (resume == "auto") {
    if (out.empty())
      throw InputError("--resume auto needs --out DIR: the folder to begin in, "
                       "or to go on from");
    std::vector<CheckpointEntry> found = checkpointsOf(out);
    std::string newest = newestWhole(found);
    // A new run would overwrite these checkpoints, so it must not begin.
    if (newest.empty() && !found.empty())
      throw InputError("--resume auto: none of the " +
                       std::to_string(found.size()) + " checkpoints in " + out +
                       " is whole; resume from another one, or move them "
                       "away to begin again");
    return newest;
  }
  if (resume != "latest")
    return checkpointAt(resume);
  std::vector<std::string> runs;
  std::error_code ignored;
  if (!out.empty()) {
    runs.push_back(out);
  } else {
    for (const fs::directory_entry &run :
         fs::directory_iterator("runs", ignored))
      if (isRunOf(run.path().filename().string(), model))
        runs.push_back(run.path().string());
  }
  // The runs that have checkpoints, each with the time of its last checkpoint.
  std::vector<std::pair<int64_t, std::vector<CheckpointEntry>>> found;
  for (const std::string &run : runs) {
    found.emplace_back(INT64_MIN, checkpointsOf(run));
    for (const CheckpointEntry &entry : found.back().second)
      found.back().first = std::max(found.back().first, entry.time);
  }
  std::sort(found.begin(), found.end(),
            [](const auto &a, const auto &b) { return a.first > b.first; });
  std::string newest;
  for (auto run = found.begin(); newest.empty() && run != found.end(); ++run)
    newest = newestWhole(run->second);
  if (newest.empty())
    throw InputError("--resume latest: there is no whole checkpoint below " +
                     (out.empty() ? "runs/" + model + "-*" : out));
  return newest;
}

//===----------------------------------------------------------------------===//
// Which configuration
//===----------------------------------------------------------------------===//

RecordedConfig recordedConfig(const std::string &checkpoint) {
  std::error_code ignored;
  CheckpointState state =
      readCheckpointState(checkpoint, /*checksDigests=*/false);
  // Configuration files beside the checkpoint may belong to a later run by now.
  if (!state.config.empty())
    return {configToml(state.config),
            (fs::path(checkpoint) / "state.json").string()};
  fs::path run = fs::path(checkpoint).lexically_normal();
  if (!run.has_filename())
    run = run.parent_path();
  run = run.parent_path();
  // In earlier versions only the run's folder has the configuration:
  // config.toml is the current one, config-N.toml the one that was used up to
  // step N.
  if (!fs::exists(run / "log.jsonl", ignored))
    return {};
  fs::path best = run / "config.toml";
  int64_t bestStep = -1;
  for (const fs::directory_entry &entry :
       fs::directory_iterator(run.empty() ? "." : run, ignored)) {
    std::string name = entry.path().filename().string();
    if (!name.starts_with("config-") || !name.ends_with(".toml"))
      continue;
    std::string number = name.substr(7, name.size() - 12);
    if (number.empty() || number.size() > 18 ||
        number.find_first_not_of("0123456789") != std::string::npos)
      continue;
    int64_t step = std::stoll(number);
    if (step >= state.step && (bestStep < 0 || step < bestStep)) {
      bestStep = step;
      best = entry.path();
    }
  }
  if (fs::exists(best, ignored))
    return {readTextFile(best.string()), best.string()};
  return {};
}

//===----------------------------------------------------------------------===//
// What differs
//===----------------------------------------------------------------------===//

/// Messages show this as the value of a key that a configuration lacks.
static const std::string unset = "not set";

static void flatten(const Json &json, const std::string &path,
                    std::map<std::string, Json> &keys) {
  if (!json.is_object() || json.empty()) {
    keys[path] = json;
    return;
  }
  for (const auto &[name, value] : json.items())
    flatten(value, path.empty() ? name : path + "." + name, keys);
}

std::map<std::string, Json> keysOf(const std::string &json) {
  std::map<std::string, Json> keys;
  Json parsed = Json::parse(json, nullptr, false);
  if (parsed.is_object())
    flatten(parsed, "", keys);
  return keys;
}

namespace {

/// Decides whether a changed key changes the mathematics. This may depend on
/// other keys, in the old or in the new configuration.
class Effects {
public:
  using Keys = std::map<std::string, Json>;
  Effects(const Keys &before, const Keys &now) {
    for (const Keys *keys : {&before, &now}) {
      auto is = [&](const char *key, const char *value) {
        auto found = keys->find(key);
        return found != keys->end() && found->second == value;
      };
      auto isOn = [&](const std::string &key) {
        auto found = keys->find("parallel.expert." + key);
        return found != keys->end() && found->second.is_number() &&
               found->second > 0;
      };
      isAsync |= is("parallel.pipeline.schedule", "pipedream-async");
      comparesMicrobatches |=
          (is("parallel.expert.capacity_scope", "microbatch") &&
           isOn("capacity")) ||
          (is("parallel.expert.aux_scope", "microbatch") &&
           (isOn("aux_loss") || isOn("z_loss")));
      auto axis = keys->find("parallel.pipeline.axis");
      if (axis != keys->end() && axis->second.is_string())
        stages.insert("mesh." + axis->second.get<std::string>());
    }
  }

  bool changesMathematics(const std::string &key) const {
    switch (effectOfKey(key)) {
    case KeyEffect::Mathematics:
      return true;
    case KeyEffect::Layout:
    case KeyEffect::Reporting:
      return false;
    case KeyEffect::LayoutUnlessAsync:
      return isAsync && (!key.starts_with("mesh.") || stages.count(key));
    case KeyEffect::LayoutUnlessPerMicrobatch:
      return isAsync || comparesMicrobatches;
    }
    return true;
  }

private:
  bool isAsync = false, comparesMicrobatches = false;
  std::set<std::string> stages; // the axis of the pipeline
};

} // namespace

/// Returns whether two paths name the same file. Relative paths are made
/// absolute first, because a configuration may have recorded either form.
static bool isSameFile(const Json &a, const Json &b) {
  if (!a.is_string() || !b.is_string() || a == "" || b == "")
    return a == b;
  auto whole = [](const Json &path) {
    return fs::absolute(path.get<std::string>()).lexically_normal();
  };
  return whole(a) == whole(b);
}

std::vector<Difference> differences(const std::string &was,
                                    const std::string &is) {
  if (was.empty()) // of earlier versions
    return {};
  std::map<std::string, Json> before = keysOf(was), now = keysOf(is);
  Effects effects(before, now);
  std::set<std::string> names;
  for (auto *keys : {&before, &now})
    for (const auto &[key, value] : *keys)
      names.insert(key);
  std::vector<Difference> found;
  for (const std::string &key : names) {
    auto a = before.find(key), b = now.find(key);
    bool isEntry = key.starts_with("dims.") || key.starts_with("mesh.") ||
                   key.starts_with("data.inputs.") ||
                   key.starts_with("data.bind.");
    // If only one of the two configurations has a key, the version of cleave
    // that wrote the other one did not know this key. So this is not a
    // difference.
    if (!isEntry && (a == before.end() || b == now.end()))
      continue;
    if (key == "data.path" || key == "train.steps")
      continue;
    auto text = [](const auto &entry, const auto &end) {
      return entry == end ? unset : jsonText(entry->second);
    };
    bool isBoth = a != before.end() && b != now.end();
    if (isBoth && key == "data.eval_path" && isSameFile(a->second, b->second))
      continue;
    // With data.shuffle_split = "auto" a resumed run takes the value that the
    // checkpoint has recorded, so this is not a difference.
    if (isBoth && key == "data.shuffle_split" &&
        (a->second == "auto" || b->second == "auto"))
      continue;
    if (!isBoth || a->second != b->second)
      found.push_back({key, text(a, before.end()), text(b, now.end()),
                       effects.changesMathematics(key)});
  }
  return found;
}

/// Returns whether a shell takes the text as one word without quotes.
bool isPlainWord(const std::string &text) {
  return text.find_first_of(" \t\n'\"\\$`&|;<>()[]{}*?!#~") ==
         std::string::npos;
}

/// Returns the text in single quotes, as a shell needs it.
std::string shellQuoted(const std::string &text) {
  std::string quoted = "'";
  for (char c : text)
    quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

/// Returns the flag that sets a key to its old value, with the quotes that TOML
/// and the shell need: " --set 'dims.\"a.b\"=1'".
static std::string setFlag(const std::string &key, const std::string &value) {
  std::string shown = key;
  for (const char *map : {"dims.", "mesh.", "data.inputs.", "data.bind."})
    if (key.starts_with(map))
      shown = map + tomlKey(key.substr(std::string(map).size()));
  Json json = Json::parse(value, nullptr, false);
  return " --set " +
         shellQuoted(shown + "=" +
                     (json.is_discarded() ? value : tomlValue(json)));
}

void checkAccepted(const std::vector<std::string> &keys,
                   const std::string &config) {
  std::map<std::string, Json> known = keysOf(config);
  for (const std::string &key : keys) {
    // A key of these tables may be missing in the new configuration, because
    // the user has removed the entry.
    bool isEntry = key.starts_with("dims.") || key.starts_with("mesh.") ||
                   key.starts_with("data.inputs.") ||
                   key.starts_with("data.bind.");
    if (key != "model" && !isEntry && !known.count(key))
      throw InputError("--accept " + key +
                       ": there is no such key; expected model, data.path, or "
                       "a key of the configuration, such as train.lr");
  }
}

/// " --accept KEY".
std::string acceptFlag(const std::string &key) {
  return " --accept " + (isPlainWord(key) ? key : shellQuoted(key));
}

void refuseChanges(const std::string &checkpoint,
                   const std::vector<Difference> &found,
                   const Accepted &accepted) {
  std::string list, keys;
  for (const Difference &entry : found)
    if (entry.changesMathematics && !accepted.count(entry.key)) {
      list += (list.empty() ? "" : ", ") + entry.key + " = " + entry.is +
              " (was " + entry.was + ")";
      if (!accepted.isBySet)
        keys += acceptFlag(entry.key);
      else if (entry.is != unset)
        keys += setFlag(entry.key, entry.is);
    }
  if (!list.empty())
    throw InputError(
        checkpoint + ": would not go on as the same run: " + list +
        "; leave it as it was" +
        (keys.empty() ? "" : ", or say that it is meant with" + keys));
}

/// Returns false only if the digests of both graphs are known, come from the
/// same version, and differ.
static bool isSameGraph(const CheckpointState &state,
                        const Manifest &manifest) {
  auto version = [](const std::string &digest) {
    return digest.substr(0, digest.find(':'));
  };
  return state.graph.empty() || manifest.graph.empty() ||
         version(state.graph) != version(manifest.graph) ||
         state.graph == manifest.graph;
}

void checkSameGraph(const std::string &checkpoint, const CheckpointState &state,
                    const Manifest &manifest, const Accepted &accepted) {
  if (accepted.count("model"))
    return;
  // An input that is now bound to another path is reported as a changed key.
  // Here files under the same path are compared.
  std::map<std::string, Json> before = keysOf(state.config),
                              now = keysOf(manifest.configJson);
  for (const auto &[input, hash] : manifest.bound)
    if (auto was = state.bound.find(input);
        was != state.bound.end() && was->second != hash &&
        before["data.bind." + input] == now["data.bind." + input])
      throw InputError(checkpoint +
                       ": would not go on as the same run: the array that "
                       "input '" +
                       input +
                       "' is bound to has changed; bind the one that was "
                       "trained with, or say that it is meant with --accept "
                       "model");
  if (isSameGraph(state, manifest))
    return;
  throw InputError(
      checkpoint + ": would not go on as the same run: model '" +
      manifest.model + "' has another graph, or other constants, than " +
      (state.model == manifest.model ? "when it was trained"
                                     : "'" + state.model + "', which was") +
      "; give the model that was trained, begin a run from these weights with "
      "--weights " +
      checkpoint + ", or say that it is meant with --accept model");
}

std::vector<Difference> graphDifferences(const CheckpointState &state,
                                         const Manifest &manifest) {
  std::vector<Difference> found;
  if (!isSameGraph(state, manifest))
    found.push_back({"model", jsonText(Json(state.graph)),
                     jsonText(Json(manifest.graph)), false});
  for (const auto &[input, hash] : manifest.bound)
    if (auto was = state.bound.find(input);
        was != state.bound.end() && was->second != hash)
      found.push_back({"data.bind." + input, jsonText(Json(was->second)),
                       jsonText(Json(hash)), false});
  return found;
}

void checkSameOptimizer(const std::string &checkpoint,
                        const CheckpointState &state,
                        const std::string &wanted) {
  std::string was = state.optimizer;
  if (was.empty()) { // of earlier versions
    SafetensorsReader file(
        (fs::path(checkpoint) / "optimizer.safetensors").string());
    for (const std::string &name : file.names())
      was = name.ends_with(".velocity") ? "sgd"
            : name.ends_with(".m")      ? "adamw"
                                        : was;
  }
  if (!was.empty() && was != wanted)
    throw InputError(checkpoint +
                     ": the checkpoint is of train.optimizer = \"" + was +
                     "\", the configuration says \"" + wanted +
                     "\"; resume with the same one, or begin a run from its "
                     "weights with --weights " +
                     checkpoint);
}

//===----------------------------------------------------------------------===//
// How far
//===----------------------------------------------------------------------===//

Extent extentOf(const TrainOptions &options, const Settings &settings,
                std::optional<int64_t> recorded) {
  Extent extent;
  if (options.horizon)
    extent.horizon = *options.horizon;
  else if (recorded &&
           std::find(options.accepted.begin(), options.accepted.end(),
                     "train.steps") == options.accepted.end())
    extent.horizon = *recorded;
  else
    extent.horizon = options.steps.value_or(settings.steps);
  extent.lastStep = options.steps.value_or(extent.horizon);
  if (extent.lastStep < 1)
    throw InputError((options.steps ? "--steps" : "train.steps") +
                     std::string(": expected at least 1 to train, found ") +
                     std::to_string(extent.lastStep));
  if (extent.lastStep > extent.horizon && settings.schedule != "constant")
    throw InputError(
        "--steps " + std::to_string(extent.lastStep) +
        " goes beyond train.steps = " + std::to_string(extent.horizon) +
        ", where train.schedule = \"" + settings.schedule +
        "\" has come to its end; " +
        (options.horizon
             ? "--set train.steps=" + std::to_string(extent.lastStep)
             : std::string("--accept train.steps")) +
        " makes the schedule longer (the learning rate changes from here on)");
  return extent;
}

//===----------------------------------------------------------------------===//
// What AdamW has counted
//===----------------------------------------------------------------------===//

UpdateCounts readUpdateCounts(const std::string &checkpoint) {
  UpdateCounts counts;
  CheckpointState state =
      readCheckpointState(checkpoint, /*checksDigests=*/false);
  fs::path folder(checkpoint);
  SafetensorsReader model((folder / "model.safetensors").string());
  for (const std::string &name : model.names())
    counts.all.insert(name);
  SafetensorsReader optimizer((folder / "optimizer.safetensors").string());
  for (const std::string &name : optimizer.names()) {
    size_t dot = name.rfind('.');
    if (dot == std::string::npos || name.substr(dot) != ".m")
      continue;
    std::string parameter = name.substr(0, dot);
    const ArrayView *count = optimizer.find(parameter + ".step");
    counts.trained[parameter] =
        count && isInteger(count->dtype) && count->elements() == 1
            ? integerAt(count->dtype, count->data, 0)
            : state.updates; // of earlier versions
  }
  return counts;
}

} // namespace cleave
