//===- Report.h - what a run says while it runs ---------------------------===//
#ifndef CLEAVE_TRAINER_REPORT_H
#define CLEAVE_TRAINER_REPORT_H

#include "Balance.h"
#include "cleave/io/File.h"
#include "cleave/trainer/Executor.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace cleave {

/// Why a step left the parameters unchanged.
enum class LeftOut {
  no,
  notFinite, ///< train.on_nan = "skip"
  noLabels,  ///< none is counted
  /// No label was counted in the step. The pipeline schedule had already
  /// updated after each microbatch, with zero gradients, so weight decay and
  /// momentum have changed the parameters.
  noLabelsUpdated,
};

/// A line of log.jsonl.
struct StepRecord {
  int64_t step = 0;
  double loss = 0;
  std::optional<double> valLoss;
  int64_t valSamples = 0; ///< over which valLoss is the mean
  double lr = 0;
  std::optional<double> gradNorm;
  LeftOut leftOut = LeftOut::no;
  int64_t tokens = 0;
  double tokensPerSecond = 0;
  double stepMs = 0;
  int64_t sentBytes = 0; ///< of the rank that sent most
  int64_t peakBytes = 0; ///< of the rank that holds most
  StepBalance balance;   ///< of the experts, where there are any
};

std::string toJsonLine(const StepRecord &record);

/// Removes the lines of a log after `step`, for a run that resumes from that
/// step.
void trimLog(const std::string &path, int64_t step);

/// Numbers of calls of malloc: while the actions of the last step ran (`step`),
/// while those of all steps but the first ran (`afterWarmUp`), and since the
/// process started.
struct Allocations {
  int64_t step = 0, afterWarmUp = 0, process = 0;
};

/// Returns the text of counters.json: traffic and memory of every rank, and how
/// many tokens chose each expert.
std::string countersToJson(StepExecutor &executor, const StepRecord &record,
                           std::optional<Allocations> allocations);

/// Shows the progress of a run: on a terminal as one line that is redrawn, else
/// as occasional plain lines.
class Progress {
public:
  /// `unit`: the unit of the speed, "tokens" or "samples".
  Progress(int64_t first, int64_t last, std::optional<bool> bar,
           std::string unit = "tokens");
  ~Progress();
  void step(const StepRecord &record);
  /// Prints a separate line.
  void say(const std::string &line);

private:
  void clear();
  void draw(const StepRecord &record);
  void print(const StepRecord &record);

  using Clock = std::chrono::steady_clock;
  std::string unit;
  int64_t first, last;
  bool bar, drawn = false;
  Clock::time_point started, printed;
};

} // namespace cleave

#endif // CLEAVE_TRAINER_REPORT_H
