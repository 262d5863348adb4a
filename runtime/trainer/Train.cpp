//===- Train.cpp - the training loop --------------------------------------===//
#include "Loop.h"
#include "Metric.h"
#include "NonFinite.h"
#include "Report.h"
#include "RunFolder.h"
#include "StopOnSignal.h"
#include "TraceFile.h"
#include "Validation.h"
#include "cleave/io/Error.h"
#include "cleave/io/File.h"
#include "cleave/program.h"
#include "cleave/trainer/Feeder.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <optional>

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
          StepExecutor &executor, TraceFile *trace,
          const std::function<void()> &checkFolder)
      : manifest(manifest), settings(settings), options(options), data(data),
        executor(executor), trace(trace), checkFolder(checkFolder),
        feeder(manifest, executor, settings.ignoreIndex) {
    for (const char *action : {"loss_grad", "update"})
      if (!executor.hasAction(action))
        throw InputError("the program has no action '" + std::string(action) +
                         "'; compile the model for training");
    for (int64_t k = 0; manifest.pipelined && k < manifest.microbatches; ++k) {
      loads.push_back(program::loadAction(k));
      if (!executor.hasAction(loads.back()))
        throw InputError("the program has no action '" + loads.back() +
                         "', though manifest.json says that it is pipelined; "
                         "compile the model again");
    }
    if (manifest.accumulates && !executor.hasAction("zero"))
      for (const BufferInfo &buffer : executor.buffers())
        if (buffer.tie.empty() &&
            (buffer.role == role::gradient ||
             buffer.role == role::accumulator || buffer.role == role::loss ||
             buffer.role == role::weight))
          zeroed.push_back(buffer.name);
    validation.emplace(manifest, settings, options, data, executor, feeder);
  }

  /// Trains from `state` on; `resumed` is the checkpoint that it was read from,
  /// or empty. Error messages of a run name the newest checkpoint.
  void run(const std::string &out, CheckpointState &state,
           const std::string &resumed);

private:
  std::optional<double> metric(const std::string &action,
                               const std::string &name) const {
    return readMetric(manifest, executor, action, name);
  }
  StepRecord step(const CheckpointState &state);
  void runAction(const std::string &action);
  void update(StepRecord &record, const CheckpointState &state);
  [[noreturn]] void stopNonFinite(const CheckpointState &state,
                                  const std::string &what, bool updated);
  void note(const StepRecord &record, CheckpointState &state);
  std::string labelsWanted() const;
  void save(const CheckpointState &state);
  void traceStep(int64_t step);
  void logged(LineFile &log, const std::string &line,
              const CheckpointState &state);
  std::string newest() const;
  void runSteps(CheckpointState &state, const StopOnSignal &signal,
                LineFile &log);

  const Manifest &manifest;
  const Settings &settings;
  const TrainOptions &options;
  const Dataset &data;
  StepExecutor &executor;
  TraceFile *trace; ///< NULL: none
  const std::function<void()> &checkFolder;
  Feeder feeder;
  std::optional<Validation> validation; ///< once the program can be trained
  std::vector<std::string> zeroed;
  std::vector<std::string> loads; ///< of each microbatch, if pipelined
  std::string out;
  Progress *progress = nullptr; ///< while it runs
  /// The newest checkpoint of this run, or of the run that it resumes; empty if
  /// there is none.
  std::string newestCheckpoint;
  /// Why a run must not go on from the newest checkpoint; empty if it may.
  std::string whyBad;
  int64_t saved = -1;        ///< its step if this run saved it, else -1
  int64_t withoutLabels = 0; ///< steps in a row
  std::chrono::steady_clock::time_point savedAt;
  int64_t allocations = 0; ///< while this step's actions ran
  int64_t afterWarmUp = 0; ///< while the actions of later steps ran
};

void Trainer::runAction(const std::string &action) {
  int64_t before = options.allocations ? options.allocations() : 0;
  executor.run(action);
  if (options.allocations)
    allocations += options.allocations() - before;
}

void Trainer::stopNonFinite(const CheckpointState &state,
                            const std::string &what, bool updated) {
  const std::string given =
      nonFiniteData(manifest, settings, data, state.nextSample);
  std::string message = "step " + std::to_string(state.step + 1) + ": " + what +
                        " is not finite; " +
                        describeNonFinite(manifest, executor, given, updated);
  // If the program has the metric "finite", its update is skipped when the loss
  // or a gradient is not finite. Then parameters and optimizer state are still
  // those before the step and may be saved.
  if (!manifest.hasMetric("update", "finite"))
    message += manifest.pipelined
                   ? "; the schedule updates after each microbatch, so that "
                     "the state before this step is lost"
                   : "";
  else if (!isStateFinite(manifest, executor)) {
    message += "; nothing was saved, as parameters or state are not finite";
    if (saved == state.step)
      whyBad = "parameters or state in it are not finite";
  } else {
    if (saved != state.step)
      save(state);
    if (!updated && given.empty())
      whyBad = "the loss of finite data is not finite with its parameters";
  }
  throw RunError(message);
}

/// Runs the update of a step whose gradients are complete, unless the update
/// must be skipped.
void Trainer::update(StepRecord &record, const CheckpointState &state) {
  std::optional<double> loss = metric("loss_grad", "loss");
  std::optional<double> weight = metric("loss_grad", "weight");
  // An asynchronous pipeline has already updated the parameters after each
  // microbatch, with zero gradients for microbatches without labels. So the
  // update of the step cannot be skipped any more.
  const bool isGuarded = manifest.hasMetric("update", "finite");
  const bool isApart = manifest.pipelined && !isGuarded;
  if (weight && *weight <= 0)
    record.leftOut = isApart ? LeftOut::noLabelsUpdated : LeftOut::noLabels;
  else if (loss && !std::isfinite(*loss)) {
    if (!settings.skipNonFinite || isApart)
      stopNonFinite(state, "the loss", /*updated=*/false);
    record.leftOut = LeftOut::notFinite;
  }
  if (record.leftOut == LeftOut::no || isApart) {
    runAction("update");
    record.gradNorm = metric("update", "grad_norm");
    if (auto value = metric("update", "loss"))
      loss = value;
    if (auto value = metric("update", "weight"))
      weight = value;
    if (!loss || !weight)
      throw InputError("the program has no metrics loss and weight; compile "
                       "the model again");
  }
  if (record.leftOut == LeftOut::no) {
    bool isBad = !std::isfinite(*loss) ||
                 (record.gradNorm && !std::isfinite(*record.gradNorm));
    bool isKept = metric("update", "finite").value_or(1) == 0;
    if ((isBad || isKept) && !(settings.skipNonFinite && isKept))
      stopNonFinite(state,
                    std::isfinite(*loss) ? "the gradient norm" : "the loss",
                    /*updated=*/true);
    if (isKept)
      record.leftOut = LeftOut::notFinite;
  }
  record.loss = record.leftOut == LeftOut::noLabels ||
                        record.leftOut == LeftOut::noLabelsUpdated
                    ? std::numeric_limits<double>::quiet_NaN()
                    : *loss / weight.value_or(1);
}

/// Returns a text for messages that says why the loss of a step has no terms.
std::string Trainer::labelsWanted() const {
  if (settings.loss == "cross_entropy")
    return "no label is counted (all are data.ignore_index = " +
           std::to_string(settings.ignoreIndex) + ")";
  return "train.loss = \"" + settings.loss + "\" is a mean of no values";
}

/// Reports skipped steps, and stops a run that skips too many in a row.
void Trainer::note(const StepRecord &record, CheckpointState &state) {
  constexpr int64_t mostInARow = 10;
  if (record.leftOut == LeftOut::no) {
    withoutLabels = 0;
    return;
  }
  const bool hasUpdated = record.leftOut == LeftOut::noLabelsUpdated;
  state.leftOut += !hasUpdated;
  const std::string at = "step " + std::to_string(record.step);
  if (record.leftOut == LeftOut::notFinite) {
    withoutLabels = 0;
    progress->say(at + ": left out, the " +
                  (std::isfinite(record.loss) ? "gradient" : "loss") +
                  " is not finite");
    return;
  }
  progress->say(at + (hasUpdated ? ": " : ": left out, ") + labelsWanted() +
                (hasUpdated ? "; the schedule has updated after each "
                              "microbatch anyway, by decay and momentum"
                            : ""));
  if (++withoutLabels < mostInARow)
    return;
  save(state);
  throw RunError(
      "steps " + std::to_string(record.step - mostInARow + 1) + " to " +
      std::to_string(record.step) + ": ten steps in a row " +
      (hasUpdated ? "had nothing to learn from, " : "were left out, ") +
      labelsWanted() + "; look at the labels of the data");
}

/// Runs one step. The step is skipped if its loss is not finite or it has no
/// labels.
StepRecord Trainer::step(const CheckpointState &state) {
  StepRecord record;
  record.step = state.step + 1;
  record.lr = learningRate(settings, record.step);
  executor.resetCounters();
  allocations = 0;
  feeder.setInteger(InputRole::Step, record.step);
  feeder.setScalar(InputRole::LearningRate, record.lr);
  if (manifest.accumulates) {
    if (executor.hasAction("zero"))
      runAction("zero");
    for (const std::string &buffer : zeroed)
      executor.zero(buffer);
  }
  const int64_t perMicrobatch = manifest.samplesPerMicrobatch();
  std::vector<FeedRow> rows(manifest.batch);
  for (int64_t i = 0; i < manifest.batch; ++i) {
    rows[i].number = state.nextSample + i;
    rows[i].sample = trainingSample(
        rows[i].number, data.samples(Split::training), settings.dataSeed);
  }
  for (int64_t k = 0; k < manifest.microbatches; ++k) {
    auto first = rows.begin() + k * perMicrobatch;
    feeder.feed(data, Split::training, {first, first + perMicrobatch}, rows);
    feeder.setInteger(InputRole::Microbatch, k);
    runAction(manifest.pipelined ? loads[k] : "loss_grad");
  }
  if (manifest.pipelined)
    runAction("loss_grad");

  update(record, state);
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

/// The newest checkpoint to resume from, for error messages.
std::string Trainer::newest() const {
  std::error_code ignored;
  if (!newestCheckpoint.empty() && !fs::exists(newestCheckpoint, ignored))
    return newestCheckpoint + " is gone, too";
  if (!newestCheckpoint.empty() && !whyBad.empty())
    return "do not resume from " + newestCheckpoint + ": " + whyBad +
           "; resume from an earlier checkpoint, or begin again with a smaller "
           "train.lr";
  return newestCheckpoint.empty() ? "no checkpoint was saved"
                                  : "--resume " + newestCheckpoint + " goes on";
}

void Trainer::save(const CheckpointState &state) {
  checkFolder();
  // The name is written to `latest` before the checkpoint, so that the
  // checkpoint is found even if the process is killed between the two. There
  // are two exceptions, in which the name is written afterwards: an existing
  // checkpoint of this name, which belongs to steps that were given up; and the
  // first save, as a run without a complete checkpoint must not look saved.
  const std::string name = checkpointName(state.step);
  std::error_code ignored;
  const bool isNamed = !newestCheckpoint.empty() &&
                       continuesIn(out, newestCheckpoint) &&
                       !fs::exists(fs::path(out) / name, ignored);
  if (isNamed)
    nameLatest(out, name, newestCheckpoint);
  newestCheckpoint = saveCheckpoint(out, manifest, executor, state);
  if (!isNamed)
    nameLatest(out, name);
  saved = state.step;
  savedAt = std::chrono::steady_clock::now();
  progress->say("saved " + newestCheckpoint);
  removeOldCheckpoints(out, settings.keep);
}

/// Traces are optional, so a run does not end if the trace cannot be written.
void Trainer::traceStep(int64_t step) {
  if (!trace)
    return;
  try {
    trace->append(executor, step);
  } catch (const RunError &error) {
    executor.stopTrace();
    trace = nullptr;
    std::fflush(stdout);
    printEscaped(stderr, "cleave: warning: %s; the trace ends before step %s\n",
                 error.what(), std::to_string(step).c_str());
  }
}

/// If the log cannot be written, the run ends; the step is saved first, if the
/// disk has space.
void Trainer::logged(LineFile &log, const std::string &line,
                     const CheckpointState &state) {
  try {
    log.append(line);
  } catch (const RunError &) {
    if (saved != state.step)
      try {
        save(state);
      } catch (const RunError &) { // the first one is told
      }
    throw;
  }
}

void Trainer::run(const std::string &folder, CheckpointState &state,
                  const std::string &resumed) {
  StopOnSignal signal;
  out = folder;
  newestCheckpoint = resumed;
  LineFile log((fs::path(out) / "log.jsonl").string());
  if (trace)
    executor.startTrace();
  Progress shown(state.step + 1, settings.lastStep, options.progressBar,
                 manifest.inputWithRole(InputRole::Tokens) ? "tokens"
                                                           : "samples");
  progress = &shown;
  savedAt = std::chrono::steady_clock::now();
  feeder.setInteger(InputRole::Seed, static_cast<int64_t>(settings.seed));
  if (std::string left = validation->samplesLeftOut(); !left.empty())
    progress->say(left);
  try {
    runSteps(state, signal, log);
  } catch (const DataError &error) {
    // Steps trained before the data changed remain valid, so they are saved.
    if (saved != state.step)
      save(state);
    throw RunError(std::string(error.what()) + "; " + newest() +
                   " with the data as it was, or with --accept data.path");
  } catch (const RunError &error) {
    throw RunError(std::string(error.what()) + "; " + newest());
  }
  if (signal.requested())
    progress->say("stopped by a signal after step " +
                  std::to_string(state.step) + "; " + newest());
  if (state.leftOut)
    progress->say(std::to_string(state.leftOut) + " of " +
                  std::to_string(state.step) + " steps were left out");
}

void Trainer::runSteps(CheckpointState &state, const StopOnSignal &signal,
                       LineFile &log) {
  using Clock = std::chrono::steady_clock;
  const int64_t tokens =
      manifest.batch * std::max<int64_t>(1, manifest.sequence);
  const int64_t firstStep = state.step + 1;
  std::string counters;
  while (state.step < settings.lastStep && !signal.requested()) {
    Clock::time_point begin = Clock::now();
    StepRecord record = step(state);
    record.stepMs =
        std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
    record.tokens = tokens;
    record.tokensPerSecond =
        static_cast<double>(tokens) / (record.stepMs / 1000);
    if (record.step > firstStep)
      afterWarmUp += allocations;
    traceStep(record.step);
    ++state.step;
    state.nextSample += manifest.batch;
    bool last = state.step == settings.lastStep;
    if (last || signal.requested())
      counters = countersToJson(
          executor, record,
          options.allocations
              ? std::optional(Allocations{allocations, afterWarmUp,
                                          options.allocations()})
              : std::nullopt);
    if (!signal.requested() && validation->isDue(state.step, last))
      validation->run(record);
    logged(log, toJsonLine(record), state);
    progress->step(record);
    note(record, state);
    bool isDue = settings.saveMinutes > 0 &&
                 Clock::now() - savedAt >=
                     std::chrono::duration<double>(60 * settings.saveMinutes);
    if (isDue || (options.saveEvery > 0 && state.step % options.saveEvery == 0))
      save(state);
  }
  if (saved != state.step)
    save(state);
  if (!counters.empty())
    writeFileAtomically((fs::path(out) / "counters.json").string(), counters);
}

} // namespace

void runLoop(const LoopInputs &in, StepExecutor &executor, TraceFile *trace,
             const std::string &out, CheckpointState &state,
             const std::function<void()> &fill) {
  Trainer trainer(in.manifest, in.settings, in.options, in.data, executor,
                  trace, in.checkFolder);
  fill();
  trainer.run(out, state, in.resumed);
}

} // namespace cleave
