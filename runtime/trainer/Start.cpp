//===- Start.cpp - what comes before the first step -----------------------===//
//
// Errors in data, checkpoint, weights and the output folder are found before
// the first step, and before anything is written.
//
//===----------------------------------------------------------------------===//
#include "Loop.h"
#include "Report.h"
#include "RunFolder.h"
#include "cleave/io/Error.h"
#include "cleave/io/Escape.h"
#include "cleave/io/File.h"
#include "cleave/trainer/Resume.h"

#include "cleave/io/JsonText.h"

#include <nlohmann/json.hpp>

#include <chrono>
#include <filesystem>

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace cleave {

namespace {

/// Prepares a run, and compares it with the run that it resumes.
class Start {
public:
  Start(const Manifest &manifest, const TrainOptions &options)
      : manifest(manifest), options(options), settings(settingsOf(manifest)),
        accepted{{options.accepted.begin(), options.accepted.end()}} {}

  void run(const ExecutorFactory &start);

private:
  void readCheckpoint();
  void openData();
  void noteEvalData();
  void checkSplit(const std::string &split);
  void lockFolder();
  void checkOut();
  bool isDone() const;
  std::string createFolder();
  void describe() const;
  void writeConfig(const std::string &out) const;
  void logResume(const std::string &out) const;

  const Manifest &manifest;
  const TrainOptions &options;
  Settings settings;
  Accepted accepted;
  std::string resume; ///< the checkpoint; empty: a new run
  CheckpointState state;
  std::vector<Difference> changes;
  bool goesOn = false; ///< continues in the checkpoint's folder
  bool isAuto = false; ///< --resume auto: starts or continues in `out`
  RunLock lock;        ///< locks the folder once it exists
  std::unique_ptr<Dataset> data;
};

/// The data settings that the checkpoint has recorded, and the number of steps
/// in its configuration.
struct Recorded {
  std::string dataPath, evalPath;
  std::optional<int64_t> steps;
  /// The value of data.shuffle_split. In earlier versions there was no such
  /// key, and the last samples were held out.
  std::string shuffleSplit = "false";
};

Recorded recordedOf(const CheckpointState &state) {
  Recorded recorded;
  Json config = Json::parse(state.config, nullptr, false);
  if (!config.is_object())
    return recorded;
  auto section = [&](const char *name) {
    auto found = config.find(name);
    return found != config.end() && found->is_object() ? *found
                                                       : Json::object();
  };
  Json data = section("data"), train = section("train");
  if (data.contains("path") && data["path"].is_string())
    recorded.dataPath = data["path"].get<std::string>();
  if (data.contains("eval_path") && data["eval_path"].is_string())
    recorded.evalPath = data["eval_path"].get<std::string>();
  if (data.contains("shuffle_split") && data["shuffle_split"].is_string())
    recorded.shuffleSplit = data["shuffle_split"].get<std::string>();
  if (train.contains("steps") && train["steps"].is_number_integer())
    recorded.steps = train["steps"].get<int64_t>();
  return recorded;
}

void Start::readCheckpoint() {
  checkAccepted(options.accepted, manifest.configJson);
  state.seed = settings.seed;
  state.dataSeed = settings.dataSeed;
  resume = resolveResume(options.resume, options.out, manifest.model);
  // With --resume auto the same command may start a run, which needs --weights,
  // or resume it, which ignores them.
  if (!resume.empty() && !options.weights.empty() && !isAuto)
    throw InputError("--resume goes on with the weights of its checkpoint, "
                     "--weights begins a run from others; give one of them");
  Recorded recorded;
  if (!resume.empty()) {
    state = readCheckpointState(resume, manifest);
    checkSameGraph(resume, state, manifest, accepted);
    recorded = recordedOf(state);
    changes = differences(state.config, manifest.configJson);
    for (Difference &change : graphDifferences(state, manifest))
      changes.push_back(std::move(change));
    refuseChanges(resume, changes, accepted);
    if (!manifest.state.empty())
      checkSameOptimizer(resume, state, settings.optimizer);
    // What earlier versions recorded.
    if (state.config.empty() &&
        (state.seed != settings.seed || state.dataSeed != settings.dataSeed))
      throw InputError(
          resume +
          ": was made with train.seed = " + std::to_string(state.seed) +
          " and data.seed = " + std::to_string(state.dataSeed) +
          ", but the program has " + std::to_string(settings.seed) + " and " +
          std::to_string(settings.dataSeed) + "; use the same seeds");
    if (!accepted.count("data.shuffle_split"))
      settings.shuffleSplit = recorded.shuffleSplit;
  } else if (!options.weights.empty()) {
    checkWeights(options.weights, manifest);
  } else {
    checkInitialValues(manifest);
  }
  state.seed = settings.seed;
  state.dataSeed = settings.dataSeed;
  if (state.stretches.empty() || state.stretches.back().batch != manifest.batch)
    state.stretches.push_back({state.step, state.nextSample, manifest.batch});
  Extent extent = extentOf(options, settings,
                           resume.empty() ? std::nullopt : recorded.steps);
  if (recorded.steps && *recorded.steps != extent.horizon)
    changes.push_back({"train.steps", std::to_string(*recorded.steps),
                       std::to_string(extent.horizon), true});
  settings.steps = extent.horizon;
  settings.lastStep = extent.lastStep;
  if (!resume.empty() && state.step >= settings.lastStep && !isAuto)
    throw InputError(
        resume + ": has done " + std::to_string(state.step) +
        " steps already; give a larger --steps than " +
        std::to_string(settings.lastStep) +
        (state.step >= settings.steps && settings.schedule != "constant"
             ? std::string(", and ") +
                   (options.horizon ? "--set train.steps=N"
                                    : "--accept train.steps") +
                   " for a schedule that is as long"
             : ""));
  if (!options.data.empty())
    settings.dataPath = options.data;
  else if (!recorded.dataPath.empty() && !accepted.count("data.path"))
    settings.dataPath = recorded.dataPath;
}

/// Refuses to train on samples other than the resumed run's, unless the user
/// has given one of the keys that select samples.
void Start::checkSplit(const std::string &split) {
  Json was = Json::parse(state.split, nullptr, false), is = Json::parse(split);
  if (!was.is_object() || was == is)
    return;
  for (const std::string &key : accepted.keys)
    if (key.starts_with("data.") || key.starts_with("dims.") ||
        key == "train.loss")
      return;
  throw InputError(
      resume + ": would not train on the samples of its run: the split is " +
      jsonText(is) + ", but was " + jsonText(was) +
      "; leave data.validation, data.shuffle_split and data.eval_path as they "
      "were, or say that they change with --accept data.validation");
}

/// Detects a validation file that has the same path as before but other
/// contents. A changed path is reported as a change of the key data.eval_path.
void Start::noteEvalData() {
  const std::string identity =
      settings.evalPath.empty() ? "" : identityOfData(settings.evalPath);
  const std::string before = recordedOf(state).evalPath;
  if (!resume.empty() && !state.evalIdentity.empty() && !identity.empty() &&
      before == fs::absolute(settings.evalPath).lexically_normal().string() &&
      Json::parse(state.evalIdentity) != Json::parse(identity)) {
    if (!accepted.count("data.eval_path"))
      throw InputError(
          resume + ": would not go on as the same run: " + settings.evalPath +
          ", which val_loss is of, has other contents than "
          "before; say that it is meant with --accept "
          "data.eval_path");
    changes.push_back({"data.eval_path", jsonText(Json(before)),
                       jsonText(Json(settings.evalPath)), false});
  }
  state.evalIdentity = identity;
}

void Start::openData() {
  if (!resume.empty())
    checkSameData(resume, state, settings.dataPath, accepted, manifest.model);
  data = openDataset(manifest, settings);
  std::string identity = identityOfData(settings.dataPath);
  // isSameData() reads the file again; this is needed only for fingerprints
  // that earlier versions have recorded.
  if (!state.dataIdentity.empty() && state.dataIdentity != identity &&
      !isSameData(state.dataIdentity, settings.dataPath))
    changes.push_back({"data.path", jsonText(Json(recordedOf(state).dataPath)),
                       jsonText(Json(settings.dataPath)), true});
  state.dataIdentity = identity;
  noteEvalData();
  if (!resume.empty())
    checkSplit(data->split());
  state.split = data->split();
  // Records whether "auto" was resolved to true or false, so that a later
  // version of cleave does not resolve it differently.
  const Json split = Json::parse(state.split);
  if (settings.shuffleSplit == "auto" && split.at("held_out") > 0)
    settings.shuffleSplit = split.at("shuffled") ? "true" : "false";
  state.optimizer = settings.optimizer;
  // The run may be resumed from another working directory, so the recorded
  // paths are absolute.
  Settings whole = settings;
  for (std::string *path : {&whole.dataPath, &whole.evalPath})
    if (!path->empty())
      *path = fs::absolute(*path).lexically_normal().string();
  state.config = configJson(manifest, whole);
}

/// Locks the run's folder before anything is read from it, because another
/// process might save a checkpoint meanwhile, which would be missed.
void Start::lockFolder() {
  isAuto = options.resume == "auto";
  std::error_code ignored;
  const bool isThere = !options.out.empty() &&
                       fs::exists(fs::symlink_status(options.out, ignored));
  if (isAuto && isThere && !isRunFolder(options.out))
    throw InputError(options.out + ": is not the folder of a run alone, and "
                                   "--resume auto would write there; give "
                                   "another --out");
  const bool mayGoOn =
      isThere && !options.resume.empty() &&
      (isAuto || options.resume == "latest" || options.resume == options.out ||
       continuesIn(options.out, options.resume));
  if (mayGoOn && !options.dryRun)
    lock = RunLock(options.out);
}

void Start::checkOut() {
  goesOn = !options.out.empty() && !resume.empty() &&
           continuesIn(options.out, resume);
  std::error_code ignored;
  const bool isThere = !options.out.empty() &&
                       fs::exists(fs::symlink_status(options.out, ignored));
  // With --resume auto an existing folder is continued. If another process has
  // just created it, locking it fails.
  goesOn = goesOn || (isAuto && isThere);
  if (goesOn && !options.dryRun && lock.folder().empty())
    lock = RunLock(options.out);
  if (!goesOn && isThere)
    throw InputError(options.out + ": the output folder exists; it is never "
                                   "overwritten: give another --out");
}

/// Creates the run's folder, and locks it.
std::string Start::createFolder() {
  std::string out;
  try {
    out = createOut(options.out, manifest.model);
  } catch (const InputError &) {
    if (isAuto)
      RunLock other(options.out); // says who was faster
    throw;
  }
  lock = RunLock(out);
  return out;
}

/// Returns whether the run that --resume auto continues has no steps left. This
/// is a success: a supervisor may repeat the command.
bool Start::isDone() const {
  if (!isAuto || resume.empty() || state.step < settings.lastStep)
    return false;
  printEscaped(stdout, "%s: all %lld steps are done\n", resume.c_str(),
               static_cast<long long>(state.step));
  return true;
}

void Start::describe() const {
  printEscaped(stdout, "%s\n", data->summary().c_str());
  std::string mesh;
  for (const auto &[axis, size] : manifest.mesh)
    mesh += (mesh.empty() ? " (" : ", ") + axis + "=" + std::to_string(size);
  printEscaped(stdout,
               "%s: %lld %s%s, batch %lld in %lld %s, steps %lld to %lld\n",
               manifest.model.c_str(), static_cast<long long>(manifest.ranks),
               manifest.ranks == 1 ? "rank" : "ranks",
               mesh.empty() ? "" : (mesh + ")").c_str(),
               static_cast<long long>(manifest.batch),
               static_cast<long long>(manifest.microbatches),
               manifest.microbatches == 1 ? "microbatch" : "microbatches",
               static_cast<long long>(state.step + 1),
               static_cast<long long>(settings.lastStep));
  auto warn = [](const std::string &text) {
    std::fflush(stdout);
    printEscaped(stderr, "cleave: warning: %s\n", text.c_str());
  };
  if (settings.warmupSteps >= settings.steps && settings.steps > 1)
    warn("train.warmup_steps = " + std::to_string(settings.warmupSteps) +
         " leaves nothing of train.steps = " + std::to_string(settings.steps) +
         ": the learning rate does not reach train.lr");
  if (int64_t samples = data->samples(Split::training);
      samples < manifest.batch)
    warn("the data has " + std::to_string(samples) +
         " samples to train on, fewer than a batch of " +
         std::to_string(manifest.batch) + ": a step reads some of them twice");
  if (std::string odd = data->warning(); !odd.empty())
    warn(odd);
  for (const Difference &change : changes)
    printEscaped(stdout, "%s = %s (was %s up to step %lld)\n",
                 change.key.c_str(), change.is.c_str(), change.was.c_str(),
                 static_cast<long long>(state.step));
}

/// Keeps config.toml under a name with the step. A run may be resumed from the
/// same step several times, so the name may get a further number.
void keepConfig(const fs::path &path, int64_t step) {
  char name[64];
  std::snprintf(name, sizeof name, "config-%06lld",
                static_cast<long long>(step));
  fs::path kept = path.parent_path() / (std::string(name) + ".toml");
  std::error_code error;
  for (int64_t n = 2; fs::exists(kept, error); ++n)
    kept = path.parent_path() /
           (std::string(name) + "-" + std::to_string(n) + ".toml");
  fs::rename(path, kept, error);
  if (error)
    throw RunError(path.string() + ": cannot be kept as " + kept.string() +
                   ": " + error.message());
}

/// Writes the current configuration. The previous one is kept under the number
/// of the step up to which it was used.
void Start::writeConfig(const std::string &out) const {
  fs::path path = fs::path(out) / "config.toml";
  std::string text = configToml(state.config);
  std::error_code ignored;
  if (goesOn && fs::exists(path, ignored)) {
    if (readTextFile(path.string()) == text)
      return;
    keepConfig(path, state.step);
  }
  writeFileAtomically(path.string(), text);
}

/// If a run begins again in a folder whose checkpoints are gone, the log of the
/// earlier run is kept.
void keepLog(const fs::path &path) {
  std::error_code error;
  const fs::path latest = path.parent_path() / "latest";
  if (!fs::exists(fs::symlink_status(latest, error)) ||
      !fs::exists(path, error))
    return;
  fs::path kept;
  for (int n = 1; kept.empty() || fs::exists(kept, error); ++n)
    kept = path.parent_path() / ("log-" + std::to_string(n) + ".jsonl");
  fs::rename(path, kept, error);
  if (error)
    throw RunError(path.string() + ": cannot be kept as " + kept.string() +
                   ": " + error.message());
  fs::remove(latest, error);
  std::fflush(stdout);
  printEscaped(stderr,
               "cleave: warning: %s: the checkpoints of its run are gone, it "
               "begins again at step 1; its log is kept as %s\n",
               path.parent_path().c_str(), kept.filename().c_str());
}

void Start::logResume(const std::string &out) const {
  std::string path = (fs::path(out) / "log.jsonl").string();
  if (goesOn && !resume.empty())
    nameLatest(out, resume);
  else if (goesOn)
    keepLog(path);
  if (goesOn)
    trimLog(path, state.step);
  if (resume.empty())
    return;
  Json changed = Json::object();
  auto valueOf = [](const std::string &text) { // null: not set
    Json value = Json::parse(text, nullptr, false);
    return value.is_discarded() ? Json(nullptr) : value;
  };
  for (const Difference &change : changes)
    changed[change.key] =
        Json::array({valueOf(change.was), valueOf(change.is)});
  double time = std::chrono::duration<double>(
                    std::chrono::system_clock::now().time_since_epoch())
                    .count();
  LineFile(path).append(jsonText(Json{{"event", "resume"},
                                      {"step", state.step},
                                      {"from", resume},
                                      {"changed", changed},
                                      {"time", time}}));
}

void Start::run(const ExecutorFactory &start) {
  // This is checked before the data is opened, as a program without a loss
  // reads no data.
  if (!manifest.hasAction("loss_grad"))
    throw InputError("the program has no loss to train on: it was compiled for "
                     "inference, or from a model in .mlir that has shardings "
                     "and no @loss_grad");
  lockFolder();
  readCheckpoint();
  if (isDone())
    return;
  openData();
  checkOut();
  describe();
  if (options.dryRun) {
    printEscaped(stdout,
                 "dry run: everything is in place, nothing was written\n");
    return;
  }
  std::fflush(stdout);

  std::optional<TraceFile> trace;
  if (!options.trace.empty())
    trace.emplace(options.trace, manifest);
  std::unique_ptr<StepExecutor> executor = start();
  std::string out;
  auto fill = [&] {
    if (!resume.empty())
      loadCheckpoint(resume, state, manifest, *executor);
    else if (!options.weights.empty())
      loadWeights(options.weights, manifest, *executor, settings.seed);
    else
      loadInitialValues(manifest, *executor, settings.seed);
    out = goesOn ? options.out : createFolder();
    printEscaped(stdout, "writing to %s%s\n", out.c_str(),
                 resume.empty() ? "" : (", resuming " + resume).c_str());
    std::fflush(stdout);
    writeConfig(out);
    logResume(out);
  };
  runLoop(
      {manifest, settings, options, *data, resume, [this] { lock.check(); }},
      *executor, trace ? &*trace : nullptr, out, state, fill);
}

} // namespace

void train(const Manifest &manifest, const TrainOptions &options,
           const ExecutorFactory &start) {
  Start(manifest, options).run(start);
}

} // namespace cleave
