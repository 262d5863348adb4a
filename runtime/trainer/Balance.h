//===- Balance.h - how evenly the experts of a step were chosen -----------===//
#ifndef CLEAVE_TRAINER_BALANCE_H
#define CLEAVE_TRAINER_BALANCE_H

#include "cleave/manifest.h"
#include "cleave/trainer/Executor.h"

#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <string>
#include <vector>

namespace cleave {

/// Counts which experts one router chose in a step, over all ranks and
/// microbatches. Each pair of a token and an expert that it chose is counted
/// once (a slot in the code).
struct RouterLoad {
  std::string router;
  std::vector<int64_t> chosen; ///< token-expert pairs of each expert
  int64_t taken = 0;           ///< pairs that were not dropped

  int64_t slots() const;
  /// The largest number of token-expert pairs of one expert, divided by the
  /// mean over all experts. It is 1 if all experts were chosen equally often.
  double imbalance() const;
  /// The share of token-expert pairs that were dropped.
  double dropped() const;
};

struct StepBalance {
  std::vector<RouterLoad> routers;
  /// The dispatch and the combination of tokens may need several all-to-alls,
  /// because each has a buffer of fixed size. This is the share of their bytes
  /// that the all-to-alls after the first carried; nullopt if no tokens are
  /// sent between ranks.
  std::optional<double> overflow;

  bool empty() const { return routers.empty(); }
};

/// Reads what the routers chose in the last step from the program's buffers,
/// and computes StepBalance::overflow from the ranks' counters of sent bytes.
StepBalance readBalance(const Manifest &manifest, StepExecutor &executor);

/// Returns the entry for a line of log.jsonl: [{"router", "load", "dropped"}].
nlohmann::ordered_json toLogEntry(const StepBalance &balance);
/// Returns the entry for counters.json: [{"router", "chosen": [...], "taken"}].
nlohmann::ordered_json toCounts(const StepBalance &balance);
/// Returns a text with the largest imbalance and the largest dropped share of
/// all routers, and the overflow: "  load 1.42  dropped 3.1%".
std::string summaryOf(const StepBalance &balance);

} // namespace cleave

#endif // CLEAVE_TRAINER_BALANCE_H
