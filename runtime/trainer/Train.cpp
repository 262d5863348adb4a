//===- Train.cpp - the training loop --------------------------------------===//
//
// Everything that can be known to be wrong is found before the first step and
// before anything is written: data, checkpoint, weights, the output folder.
//
//===----------------------------------------------------------------------===//
#include "cleave/trainer/Train.h"
#include "Report.h"
#include "RunFolder.h"
#include "StopOnSignal.h"
#include "TraceFile.h"
#include "cleave/io/Error.h"
#include "cleave/io/File.h"
#include "cleave/trainer/Checkpoint.h"
#include "cleave/trainer/Data.h"
#include "cleave/trainer/Feeder.h"
#include "cleave/trainer/Settings.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>

namespace fs = std::filesystem;

namespace cleave {

namespace {

//===----------------------------------------------------------------------===//
// One run
//===----------------------------------------------------------------------===//

class Trainer {
public:
  Trainer(const Manifest &manifest, const Settings &settings,
          const TrainOptions &options, const Dataset &data,
          StepExecutor &executor, TraceFile *trace)
      : manifest(manifest), settings(settings), options(options), data(data),
        executor(executor), trace(trace),
        feeder(manifest, executor, settings.ignoreIndex) {
    for (const char *action : {"loss_grad", "update"})
      if (!executor.hasAction(action))
        throw InputError("the program has no action '" + std::string(action) +
                         "'; compile the model for training");
    for (int64_t k = 0; manifest.pipelined && k < manifest.microbatches; ++k) {
      loads.push_back("load." + std::to_string(k));
      if (!executor.hasAction(loads.back()))
        throw InputError("the program has no action '" + loads.back() +
                         "', though manifest.json says that it is pipelined; "
                         "compile the model again");
    }
    if (manifest.accumulates && !executor.hasAction("zero"))
      for (const BufferInfo &buffer : executor.buffers())
        if (buffer.tie.empty() &&
            (buffer.role == "gradient" || buffer.role == "accumulator" ||
             buffer.role == "loss" || buffer.role == "weight"))
          zeroed.push_back(buffer.name);
    int64_t steps = settings.steps;
    evalEvery = options.evalEvery >= 0 ? options.evalEvery
                                       : std::max<int64_t>(1, steps / 10);
    validates = validationSamples() > 0 && executor.hasAction("loss") &&
                metric("loss", "loss");
  }

  void run(const std::string &out, CheckpointState &state);

private:
  std::optional<double> metric(const std::string &action,
                               const std::string &name);
  StepRecord step(const CheckpointState &state);
  void runAction(const std::string &action);
  int64_t validationSamples() const;
  void validate(StepRecord &record);
  [[noreturn]] void stopNonFinite(const CheckpointState &state,
                                  const std::string &what, bool updated);
  std::string firstNonFinite(bool updated);

  const Manifest &manifest;
  const Settings &settings;
  const TrainOptions &options;
  const Dataset &data;
  StepExecutor &executor;
  TraceFile *trace; ///< NULL: none
  Feeder feeder;
  std::vector<std::string> zeroed;
  std::vector<std::string> loads; ///< of each microbatch, if pipelined
  int64_t evalEvery;
  bool validates;
  int64_t allocations = 0; ///< while this step's actions ran
  int64_t afterWarmUp = 0; ///< and while all but the first step's did
};

void Trainer::runAction(const std::string &action) {
  int64_t before = options.allocations ? options.allocations() : 0;
  executor.run(action);
  if (options.allocations)
    allocations += options.allocations() - before;
}

/// The scalar that an action left, nothing if the program has none.
std::optional<double> Trainer::metric(const std::string &action,
                                      const std::string &name) {
  const BufferInfo *found = nullptr;
  for (const ManifestMetric &entry : manifest.metrics)
    if (entry.action == action && entry.name == name)
      found = &executor.need(entry.buffer);
  if (!found && action == "update")
    for (const BufferInfo &buffer : executor.buffers())
      if (buffer.role == "metric" &&
          (buffer.name == "metric." + name || buffer.name == name))
        found = &buffer;
  if (!found)
    for (const BufferInfo &buffer : executor.buffers())
      if (buffer.role == name)
        found = &buffer;
  if (!found)
    return std::nullopt;
  if (isFloat(found->dtype))
    return executor.gather(found->name, "f64").as<double>()[0];
  Array value = executor.gather(found->name, found->dtype);
  return static_cast<double>(integerAt(value.dtype, value.bytes.data(), 0));
}

/// Names the first tensor with a NaN or an infinity, in the order in which a
/// step computes: parameters, gradients. Once `updated`, gradients come first,
/// because a bad one has spread to state and parameters by then.
std::string Trainer::firstNonFinite(bool updated) {
  auto search = [&](const std::string &buffer,
                    const std::string &label) -> std::string {
    const BufferInfo &info = executor.need(buffer);
    if (!isFloat(info.dtype))
      return "";
    Array value = executor.gather(buffer, info.dtype);
    int64_t at = cleave::firstNonFinite(value.dtype, value.bytes.data(),
                                        value.elements());
    if (at < 0)
      return "";
    return label + ", element " + std::to_string(at) + " of " +
           shapeToString(value.shape);
  };
  auto ofTensors = [&]() -> std::string {
    for (const ManifestTensor &tensor : manifest.tensors)
      if (std::string text =
              search(tensor.buffer, tensor.kind + " '" + tensor.name + "'");
          !text.empty())
        return text;
    return "";
  };
  auto ofGradients = [&]() -> std::string {
    for (const BufferInfo &buffer : executor.buffers())
      if (buffer.role == "gradient")
        if (std::string text =
                search(buffer.name,
                       "gradient of '" +
                           (buffer.of.empty() ? buffer.name : buffer.of) + "'");
            !text.empty())
          return text;
    return "";
  };
  for (bool gradients : {updated, !updated})
    if (std::string text = gradients ? ofGradients() : ofTensors();
        !text.empty())
      return text;
  for (const ManifestState &item : manifest.state)
    if (std::string text = search(item.buffer, "state '" + item.parameter +
                                                   "." + item.slot + "'");
        !text.empty())
      return text;
  return "the " + std::string(updated ? "norm" : "loss") +
         " itself; parameters and gradients are finite";
}

void Trainer::stopNonFinite(const CheckpointState &state,
                            const std::string &what, bool updated) {
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < manifest.batch; ++i)
    samples.push_back(trainingSample(state.nextSample + i,
                                     data.samples(Split::training),
                                     settings.dataSeed));
  std::sort(samples.begin(), samples.end());
  std::string given = data.firstNonFinite(samples);
  // A mask may be infinite and right, so the tensor is named all the same.
  throw RunError("step " + std::to_string(state.step + 1) + ": " + what +
                 " is not finite; " +
                 (given.empty() ? "" : "nor is the data: " + given + "; ") +
                 "the first non-finite tensor is " + firstNonFinite(updated) +
                 " (train.on_nan = \"skip\" leaves such steps out)");
}

/// One step. A step that is left out has a loss that is not finite.
StepRecord Trainer::step(const CheckpointState &state) {
  StepRecord record;
  record.step = state.step + 1;
  record.lr = learningRate(settings, record.step);
  executor.resetCounters();
  allocations = 0;
  feeder.setInteger("step", record.step);
  feeder.setScalar("lr", record.lr);
  if (manifest.accumulates) {
    if (executor.hasAction("zero"))
      runAction("zero");
    for (const std::string &buffer : zeroed)
      executor.zero(buffer);
  }
  const int64_t perMicrobatch = manifest.samplesPerMicrobatch();
  std::vector<FeedRow> rows(perMicrobatch);
  for (int64_t k = 0; k < manifest.microbatches; ++k) {
    for (int64_t i = 0; i < perMicrobatch; ++i) {
      rows[i].number = state.nextSample + k * perMicrobatch + i;
      rows[i].sample = trainingSample(
          rows[i].number, data.samples(Split::training), settings.dataSeed);
    }
    feeder.feed(data, Split::training, rows);
    feeder.setInteger("microbatch", k);
    runAction(manifest.pipelined ? loads[k] : "loss_grad");
  }
  if (manifest.pipelined)
    runAction("loss_grad");

  std::optional<double> loss = metric("loss_grad", "loss");
  std::optional<double> weight = metric("loss_grad", "weight");
  bool skipped = false;
  if (loss && !std::isfinite(*loss)) {
    if (!settings.skipNonFinite)
      stopNonFinite(state, "the loss", /*updated=*/false);
    skipped = true;
  }
  if (weight && !(*weight > 0)) {
    std::string at = "step " + std::to_string(record.step) + ": ";
    if (settings.loss == "cross_entropy")
      throw InputError(at +
                       "no label is counted; all are data.ignore_index = " +
                       std::to_string(settings.ignoreIndex));
    throw InputError(at + "the values that train.loss = " + settings.loss +
                     " is a mean of number " + std::to_string(*weight) +
                     ", expected more than 0");
  }
  if (!skipped) {
    runAction("update");
    std::optional<double> finite = metric("update", "finite");
    record.gradNorm = metric("update", "grad_norm");
    if (auto value = metric("update", "loss"))
      loss = value;
    if (auto value = metric("update", "weight"))
      weight = value;
    if (!loss || !weight)
      throw InputError("the program has no metrics loss and weight; compile "
                       "the model again");
    bool bad = !std::isfinite(*loss) ||
               (record.gradNorm && !std::isfinite(*record.gradNorm));
    bool left = finite && *finite == 0; // the program protected itself
    if ((bad || left) && !(settings.skipNonFinite && left))
      stopNonFinite(state,
                    std::isfinite(*loss) ? "the gradient norm" : "the loss",
                    /*updated=*/true);
    skipped = left;
  }
  record.leftOut = skipped;
  record.loss = weight ? *loss / *weight : *loss;
  for (int64_t rank = 0; rank < executor.ranks(); ++rank) {
    int64_t sent = 0;
    for (const RankTraffic &entry : executor.traffic(rank))
      sent += entry.sentBytes;
    RankMemory memory = executor.memory(rank);
    record.sentBytes = std::max(record.sentBytes, sent);
    record.peakBytes =
        std::max(record.peakBytes, memory.arenaBytes + memory.unplannedBytes);
  }
  record.balance = readBalance(manifest, executor);
  return record;
}

/// How many held-out samples can be validated. Labels that are not counted
/// stand for missing samples; a loss without labels to leave out counts every
/// row of a microbatch, so that only whole ones are right.
int64_t Trainer::validationSamples() const {
  int64_t count = data.samples(Split::validation);
  if (settings.loss == "cross_entropy")
    return count;
  return count - count % manifest.samplesPerMicrobatch();
}

/// The mean loss over held-out samples, read in order, and how many they are.
void Trainer::validate(StepRecord &record) {
  // The same samples every time, so that values can be compared; unless asked
  // otherwise, few enough to cost some percent of the time.
  int64_t count = validationSamples();
  int64_t limit = options.evalSamples;
  if (limit < 0)
    limit = std::clamp<int64_t>(
        manifest.batch * std::max<int64_t>(evalEvery, settings.steps / 10) / 4,
        4 * manifest.batch, 1024);
  if (limit > 0)
    count = std::min(count, limit);
  const int64_t perMicrobatch = manifest.samplesPerMicrobatch();
  if (settings.loss != "cross_entropy")
    count = std::max(perMicrobatch, count - count % perMicrobatch);
  double loss = 0, weight = 0;
  for (int64_t begin = 0; begin < count; begin += perMicrobatch) {
    std::vector<FeedRow> rows(perMicrobatch);
    for (int64_t i = 0; i < perMicrobatch && begin + i < count; ++i)
      rows[i] = {begin + i, begin + i};
    feeder.feed(data, Split::validation, rows);
    executor.run("loss");
    loss += metric("loss", "loss").value_or(0);
    weight += metric("loss", "weight").value_or(0);
  }
  record.valLoss = loss / weight;
  record.valSamples = count;
}

void Trainer::run(const std::string &out, CheckpointState &state) {
  using Clock = std::chrono::steady_clock;
  StopOnSignal signal;
  LineFile log((fs::path(out) / "log.jsonl").string());
  if (trace)
    executor.startTrace();
  Progress progress(state.step + 1, settings.steps, options.progressBar,
                    manifest.inputWithRole("tokens") ? "tokens" : "samples");
  feeder.setInteger("seed", static_cast<int64_t>(settings.seed));
  const int64_t tokens =
      manifest.batch * std::max<int64_t>(1, manifest.sequence);
  const int64_t firstStep = state.step + 1;
  int64_t saved = -1;
  auto save = [&] {
    std::string path = saveCheckpoint(out, manifest, executor, state);
    saved = state.step;
    progress.say("saved " + path);
  };
  if (int64_t held = data.samples(Split::validation),
      used = validationSamples();
      used < held)
    progress.say(
        "val_loss is of " + std::to_string(used) + " of the " +
        std::to_string(held) + " held-out samples: with train.loss = \"" +
        settings.loss + "\" only whole microbatches of " +
        std::to_string(manifest.samplesPerMicrobatch()) + " can be validated");
  std::string counters;
  while (state.step < settings.steps && !signal.requested()) {
    Clock::time_point begin = Clock::now();
    StepRecord record = step(state);
    record.stepMs =
        std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
    record.tokens = tokens;
    record.tokensPerSecond =
        static_cast<double>(tokens) / (record.stepMs / 1000);
    if (record.step > firstStep)
      afterWarmUp += allocations;
    if (trace)
      trace->append(executor, record.step);
    ++state.step;
    state.nextSample += manifest.batch;
    bool last = state.step == settings.steps;
    if (last || signal.requested())
      counters = countersToJson(
          executor, record,
          options.allocations
              ? std::optional(Allocations{allocations, afterWarmUp,
                                          options.allocations()})
              : std::nullopt);
    if (validates && !signal.requested() &&
        (last || (evalEvery > 0 && state.step % evalEvery == 0)))
      validate(record);
    log.append(toJsonLine(record));
    progress.step(record);
    if (record.leftOut)
      progress.say("step " + std::to_string(record.step) + ": left out, the " +
                   (std::isfinite(record.loss) ? "gradient" : "loss") +
                   " is not finite");
    if (options.saveEvery > 0 && state.step % options.saveEvery == 0)
      save();
  }
  if (saved != state.step)
    save();
  if (!counters.empty())
    writeFileAtomically((fs::path(out) / "counters.json").string(), counters);
  if (signal.requested())
    progress.say("stopped by a signal after step " +
                 std::to_string(state.step) + "; --resume " + out + "/" +
                 checkpointName(state.step) + " goes on");
}

} // namespace

//===----------------------------------------------------------------------===//
// Entry
//===----------------------------------------------------------------------===//

void train(const Manifest &manifest, const TrainOptions &options,
           const ExecutorFactory &start) {
  Settings settings = settingsOf(manifest);
  if (!options.data.empty())
    settings.dataPath = options.data;
  if (options.steps)
    settings.steps = *options.steps;
  if (settings.steps < 1)
    throw InputError("--steps: expected at least 1, found " +
                     std::to_string(settings.steps));
  std::unique_ptr<Dataset> data = openDataset(manifest, settings);

  CheckpointState state;
  state.seed = settings.seed;
  state.dataSeed = settings.dataSeed;
  std::string resume = resolveResume(options, manifest);
  if (!resume.empty()) {
    state = readCheckpointState(resume, manifest);
    if (state.seed != settings.seed || state.dataSeed != settings.dataSeed)
      throw InputError(
          resume +
          ": was made with train.seed = " + std::to_string(state.seed) +
          " and data.seed = " + std::to_string(state.dataSeed) +
          ", but the program has " + std::to_string(settings.seed) + " and " +
          std::to_string(settings.dataSeed) + "; use the same seeds");
    int64_t counted = state.step * manifest.updatesPerStep;
    if (state.updates != counted && !manifest.state.empty())
      throw InputError(
          resume + ": has made " + std::to_string(state.updates) +
          " updates in " + std::to_string(state.step) +
          " steps, but the optimizer of this program would go on from " +
          std::to_string(counted) +
          "; a schedule that updates after every microbatch is resumed with "
          "the same schedule and train.microbatches, and no other one is");
    if (state.step >= settings.steps)
      throw InputError(resume + ": has done " + std::to_string(state.step) +
                       " steps already; give a larger --steps than " +
                       std::to_string(settings.steps));
  } else {
    checkInitialValues(manifest);
  }
  bool goesOn = !options.out.empty() && !resume.empty() &&
                continuesIn(options.out, resume);
  std::error_code ignored;
  if (!goesOn && !options.out.empty() &&
      fs::exists(fs::symlink_status(options.out, ignored)))
    throw InputError(options.out + ": the output folder exists; it is never "
                                   "overwritten: give another --out");

  std::printf("%s\n", data->summary().c_str());
  std::string mesh;
  for (const auto &[axis, size] : manifest.mesh)
    mesh += (mesh.empty() ? " (" : ", ") + axis + "=" + std::to_string(size);
  std::printf("%s: %lld %s%s, batch %lld in %lld %s, steps %lld to %lld\n",
              manifest.model.c_str(), static_cast<long long>(manifest.ranks),
              manifest.ranks == 1 ? "rank" : "ranks",
              mesh.empty() ? "" : (mesh + ")").c_str(),
              static_cast<long long>(manifest.batch),
              static_cast<long long>(manifest.microbatches),
              manifest.microbatches == 1 ? "microbatch" : "microbatches",
              static_cast<long long>(state.step + 1),
              static_cast<long long>(settings.steps));
  if (options.dryRun) {
    std::printf("dry run: everything is in place, nothing was written\n");
    return;
  }
  std::fflush(stdout);

  std::optional<TraceFile> trace;
  if (!options.trace.empty())
    trace.emplace(options.trace, manifest);
  std::unique_ptr<StepExecutor> executor = start();
  Trainer trainer(manifest, settings, options, *data, *executor,
                  trace ? &*trace : nullptr);
  if (resume.empty())
    loadInitialValues(manifest, *executor, settings.seed);
  else
    loadCheckpoint(resume, manifest, *executor);

  std::string out =
      goesOn ? options.out : createOut(options.out, manifest.model);
  std::printf("writing to %s%s\n", out.c_str(),
              resume.empty() ? "" : (", resuming " + resume).c_str());
  std::fflush(stdout);
  writeFileAtomically((fs::path(out) / "config.toml").string(),
                      configToml(manifest, settings));
  if (goesOn)
    trimLog((fs::path(out) / "log.jsonl").string(), state.step);
  trainer.run(out, state);
}

} // namespace cleave
