// Resolves the flags of a training run that resumes from a checkpoint.

#include "ResumeRun.h"

#include "Diagnostics.h"

#include "cleave/Compiler/Import.h"
#include "cleave/io/Array.h"
#include "cleave/trainer/Resume.h"

#include "mlir/IR/MLIRContext.h"

#include <algorithm>
#include <filesystem>
#include <map>

using namespace cleave;
using namespace cleave::driver;

RunPlan::RunPlan(const TrainOptions &asked, const std::string &model,
                 CommonOptions &common)
    : asked(asked) {
  if (asked.resume.empty())
    return;
  // With --resume auto the same command may start a run, which needs --weights,
  // or resume it, which ignores them.
  if (!asked.weights.empty() && !isAuto())
    throw Failure(BadUsage,
                  "--resume goes on with the weights of its checkpoint, "
                  "--weights begins a run from others; give one of them");
  path = resolveResume(asked.resume, asked.out,
                       std::filesystem::path(model).stem().string());
  if (path.empty()) // auto, which begins
    return;
  configFile = common.configFile;
  RecordedConfig base = recordedConfig(path);
  common.base = base.toml;
  common.baseName = base.file;
  if (base.toml.empty())
    return;
  ConfigResult<LoadedConfig> loaded = loadConfigText(base.toml, base.file);
  if (!loaded)
    throw Failure(BadUsage, loaded.error());
  recorded = loaded->config;
}

void RunPlan::checkModel(const Config &config, const std::string &model) const {
  if (path.empty() || model.ends_with(".mlir"))
    return;
  CheckpointState state = readCheckpointState(path, /*checksDigests=*/false);
  mlir::MLIRContext context;
  Diagnostics diagnostics(context); // reported when the model is imported
  ImportOptions options = compiler::limitsOf(config);
  options.untie = config.train.untie;
  auto tensors = initializersOf(model, context, options);
  if (failed(tensors))
    return;
  for (const auto &[name, shape] : shapesInCheckpoint(path)) {
    auto found = tensors->find(name);
    if (found != tensors->end() && found->second == shape)
      continue;
    bool isOtherUntie = recorded && recorded->train.untie != config.train.untie;
    bool isNamedAlike =
        state.model == std::filesystem::path(model).stem().string();
    throw Failure(BadUsage,
                  path +
                      (isNamedAlike ? ": is no checkpoint of this model"
                                    : ": is a checkpoint of another model ('" +
                                          state.model + "')") +
                      ": it has a tensor '" + name + "' of shape " +
                      shapeToString(shape) + ", where " + model + " has " +
                      (found == tensors->end()
                           ? "none"
                           : "shape " + shapeToString(found->second)) +
                      (isOtherUntie
                           ? "; its run has another train.untie, which has to "
                             "stay as it was"
                           : "; give the model that was trained, or a "
                             "checkpoint of this one"));
  }
}

/// Fills train.began: parameters with the same number of updates form a group.
/// Parameters that are trained for the first time belong to no group.
void RunPlan::setBegan(Config &config) const {
  config.train.began.clear();
  if (config.train.optimizer != "adamw")
    return;
  UpdateCounts counts = readUpdateCounts(path);
  std::map<int64_t, std::vector<std::string>> sets;
  for (const auto &[name, count] : counts.trained)
    sets[count].push_back(name);
  // If the configuration now trains other parameters, those without updates in
  // the checkpoint may be trained for the first time.
  bool mayBeNew = counts.trained.size() < counts.all.size() &&
                  (!recorded || recorded->train.frozen != config.train.frozen ||
                   recorded->train.trainable != config.train.trainable);
  auto largest = std::max_element(sets.begin(), sets.end(),
                                  [](const auto &a, const auto &b) {
                                    return a.second.size() < b.second.size();
                                  });
  for (auto entry = sets.begin(); entry != sets.end(); ++entry)
    if (mayBeNew ? entry->first != 0 : entry != largest)
      config.train.began.push_back(entry->second);
}

void RunPlan::checkData(const LoadedConfig &loaded, const std::string &model,
                        const std::string &data) {
  accepted = asked.accepted;
  for (const auto &[key, origin] : loaded.origins)
    if (origin == "--set" || origin == "--bind")
      accepted.push_back(key);
    else if (key == "train.steps")
      filesSteps = !configFile.empty() && origin.starts_with(configFile);
  if (!path.empty())
    checkSameData(path, readCheckpointState(path, /*checksDigests=*/false),
                  data, acceptedKeys(),
                  std::filesystem::path(model).stem().string());
}

Accepted RunPlan::acceptedKeys() const {
  return {{accepted.begin(), accepted.end()}, /*isBySet=*/true};
}

void RunPlan::settle(Config &config) {
  const Accepted keys = acceptedKeys();
  const int64_t asFile = config.train.steps;
  if (path.empty()) {
    horizon = keys.count("train.steps") ? asFile : asked.steps.value_or(asFile);
  } else {
    CheckpointState state = readCheckpointState(path, /*checksDigests=*/false);
    std::string was = state.config;
    if (was.empty() && recorded)
      was = writeConfigJson(*recorded);
    std::vector<Difference> found = differences(was, writeConfigJson(config));
    if (recorded && filesSteps && !asked.steps &&
        asFile != recorded->train.steps)
      found.push_back({"train.steps", std::to_string(recorded->train.steps),
                       std::to_string(asFile), true});
    refuseChanges(path, found, keys);
    checkSameOptimizer(path, state, config.train.optimizer);
    // The recorded configuration has the number of steps that was in effect,
    // even if --steps overrode the number in the configuration file.
    horizon =
        recorded && !keys.count("train.steps") ? recorded->train.steps : asFile;
    setBegan(config);
  }
  TrainOptions options = asked;
  options.horizon = horizon;
  Settings settings;
  settings.schedule = config.train.schedule;
  extentOf(options, settings, std::nullopt);
}
