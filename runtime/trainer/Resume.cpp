//===- Resume.cpp - that a resumed run is the same run
//-----------------------===//
#include "cleave/trainer/Resume.h"
#include "cleave/io/Error.h"
#include "cleave/io/File.h"
#include "cleave/io/Safetensors.h"

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

/// Whether a folder's name is MODEL-N.
static bool isRunOf(const std::string &name, const std::string &model) {
  return name.size() > model.size() + 1 && name.starts_with(model + "-") &&
         name.find_first_not_of("0123456789", model.size() + 1) ==
             std::string::npos;
}

std::string resolveResume(const std::string &resume, const std::string &out,
                          const std::string &model) {
  if (resume != "latest")
    return resume;
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
  std::vector<CheckpointEntry> found;
  for (const std::string &run : runs)
    for (CheckpointEntry &entry : checkpointsOf(run))
      found.push_back(std::move(entry));
  std::sort(found.begin(), found.end());
  for (auto entry = found.rbegin(); entry != found.rend(); ++entry) {
    std::string torn = whatIsTorn(entry->path);
    if (torn.empty())
      return entry->path;
    std::fprintf(stderr, "cleave: warning: %s; it is passed over\n",
                 torn.c_str());
  }
  throw InputError("--resume latest: there is no whole checkpoint below " +
                   (out.empty() ? "runs/" + model + "-*" : out));
}

//===----------------------------------------------------------------------===//
// Which configuration
//===----------------------------------------------------------------------===//

RecordedConfig recordedConfig(const std::string &checkpoint) {
  std::error_code ignored;
  CheckpointState state =
      readCheckpointState(checkpoint, /*checksDigests=*/false);
  fs::path run = fs::path(checkpoint).lexically_normal();
  if (!run.has_filename())
    run = run.parent_path();
  run = run.parent_path();
  // config-N.toml held up to step N.
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
  if (!state.config.empty())
    return {configToml(state.config),
            (fs::path(checkpoint) / "state.json").string()};
  return {};
}

//===----------------------------------------------------------------------===//
// What differs
//===----------------------------------------------------------------------===//

static void flatten(const Json &json, const std::string &path,
                    std::map<std::string, Json> &keys) {
  if (!json.is_object() || json.empty()) {
    keys[path] = json;
    return;
  }
  for (const auto &[name, value] : json.items())
    flatten(value, path.empty() ? name : path + "." + name, keys);
}

static std::map<std::string, Json> keysOf(const std::string &json) {
  std::map<std::string, Json> keys;
  Json parsed = Json::parse(json, nullptr, false);
  if (parsed.is_object())
    flatten(parsed, "", keys);
  return keys;
}

/// Keys whose values say how, where and how long, but not what is computed.
static bool isMathematical(const std::string &key, bool updatesApart) {
  static const std::set<std::string> how = {
      "data.eval_path", "train.on_nan",       "train.keep",
      "train.began",    "train.save_minutes", "train.grad_dtype"};
  if (how.count(key))
    return false;
  // Each microbatch has an update of its own.
  if (key == "train.microbatches" || key == "parallel.pipeline.schedule")
    return updatesApart;
  if (key.starts_with("data.") || key.starts_with("train.") ||
      key.starts_with("dims."))
    return true;
  static const std::set<std::string> ofExperts = {"capacity",  "capacity_scope",
                                                  "aux_loss",  "z_loss",
                                                  "aux_scope", "bias_update"};
  const std::string experts = "parallel.expert.";
  return key.starts_with(experts) &&
         ofExperts.count(key.substr(experts.size()));
}

std::vector<Difference> differences(const std::string &was,
                                    const std::string &is) {
  if (was.empty()) // of earlier versions
    return {};
  std::map<std::string, Json> before = keysOf(was), now = keysOf(is);
  auto isApart = [](std::map<std::string, Json> &keys) {
    auto found = keys.find("parallel.pipeline.schedule");
    return found != keys.end() && found->second == "pipedream-async";
  };
  bool apart = isApart(before) || isApart(now);
  std::set<std::string> names;
  for (auto *keys : {&before, &now})
    for (const auto &[key, value] : *keys)
      names.insert(key);
  std::vector<Difference> found;
  for (const std::string &key : names) {
    auto a = before.find(key), b = now.find(key);
    bool isEntry = key.starts_with("dims.") || key.starts_with("mesh.") ||
                   key.starts_with("data.inputs.") || key.starts_with("data.bind.");
    // A key that another version does not know says nothing.
    if (!isEntry && (a == before.end() || b == now.end()))
      continue;
    if (key == "data.path" || key == "train.steps")
      continue;
    auto text = [](const auto &entry, const auto &end) {
      return entry == end ? std::string("not set") : entry->second.dump();
    };
    if (a == before.end() || b == now.end() || a->second != b->second)
      found.push_back({key, text(a, before.end()), text(b, now.end()),
                       isMathematical(key, apart)});
  }
  return found;
}

void refuseChanges(const std::string &checkpoint,
                   const std::vector<Difference> &found,
                   const std::set<std::string> &accepted) {
  std::string list, keys;
  for (const Difference &entry : found)
    if (entry.changesMathematics && !accepted.count(entry.key)) {
      list += (list.empty() ? "" : ", ") + entry.key + " = " + entry.is +
              " (was " + entry.was + ")";
      keys += " --set '" + entry.key + "=" + entry.is + "'";
    }
  if (!list.empty())
    throw InputError(checkpoint + ": would not go on as the same run: " + list +
                     "; leave it as it was, or say that it is meant with "
                     "`cleave train --resume` and" +
                     keys);
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
// The data
//===----------------------------------------------------------------------===//

static Json identityOfFile(const std::string &path) {
  MappedFile file(path);
  constexpr size_t ends = size_t(1) << 20;
  std::string_view bytes{reinterpret_cast<const char *>(file.data()),
                         file.size()};
  std::string digest = digestOf(bytes.substr(0, ends));
  if (bytes.size() > ends)
    digest += digestOf(bytes.substr(std::max(ends, bytes.size() - ends)));
  return {{"bytes", file.size()}, {"digest", digest}};
}

std::string identityOfData(const std::string &path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored))
    return identityOfFile(path).dump();
  std::map<std::string, Json> files;
  for (const fs::directory_entry &entry : fs::directory_iterator(path))
    if (entry.path().extension() == ".npy")
      files[entry.path().filename().string()] =
          identityOfFile(entry.path().string());
  return Json(files).dump();
}

void checkSameData(const std::string &checkpoint, const CheckpointState &state,
                   const std::string &path,
                   const std::set<std::string> &accepted) {
  std::error_code ignored;
  if (path.empty() || accepted.count("data.path"))
    return;
  auto keys = keysOf(state.config);
  std::string recorded;
  if (auto found = keys.find("data.path");
      found != keys.end() && found->second.is_string())
    recorded = found->second.get<std::string>();
  if (!fs::exists(path, ignored)) {
    if (recorded.empty() || fs::absolute(path) != fs::absolute(recorded))
      return; // said where it is opened
    throw InputError(checkpoint + ": the data of its run is gone, " + path +
                     "; give --data FILE with the place where it is now");
  }
  if (state.dataIdentity.empty() ||
      Json::parse(state.dataIdentity, nullptr, false) ==
          Json::parse(identityOfData(path), nullptr, false))
    return;
  throw InputError(
      checkpoint + ": would not go on as the same run: " + path +
      " is not the data that it was trained on" +
      (recorded.empty() || fs::absolute(path) == fs::absolute(recorded)
           ? ", its contents have changed"
           : " (" + recorded + ")") +
      "; say that it is meant with `cleave train --resume` and --set "
      "data.path=" +
      path);
}

//===----------------------------------------------------------------------===//
// How far
//===----------------------------------------------------------------------===//

Extent extentOf(const TrainOptions &options, const Settings &settings,
                std::optional<int64_t> recorded) {
  Extent extent;
  if (options.horizon)
    extent.horizon = *options.horizon;
  else if (recorded)
    extent.horizon = *recorded;
  else
    extent.horizon = options.steps.value_or(settings.steps);
  extent.lastStep = options.steps.value_or(extent.horizon);
  if (extent.lastStep < 1)
    throw InputError("--steps: expected at least 1, found " +
                     std::to_string(extent.lastStep));
  if (extent.lastStep > extent.horizon && settings.schedule != "constant")
    throw InputError(
        "--steps " + std::to_string(extent.lastStep) +
        " goes beyond train.steps = " + std::to_string(extent.horizon) +
        ", where train.schedule = \"" + settings.schedule +
        "\" has come to its end; --set train.steps=" +
        std::to_string(extent.lastStep) +
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
