// When collectives start and end, of commands in a fixed order.
//
// A list of commands is replayed with two resources: what computes, in order,
// and what communicates, one collective after the other. Before each command,
// collectives start whose operands are known, as long as the communicating one
// has time for them: first those that are read soonest, no earlier than what
// still has to be sent asks for, and as memory allows; then those that nobody
// waits for, such as sums of gradients. A collective ends before its first
// reader or, so that its operands' memory becomes free, when it is done.

#ifndef CLEAVE_LIB_SCHEDULE_OVERLAPPLAN_H
#define CLEAVE_LIB_SCHEDULE_OVERLAPPLAN_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace cleave::schedule {

/// A command that stays where it is.
struct Step {
  double seconds = 0;
  /// A collective that starts and ends here.
  bool communicates = false;
  /// The pinned transfer that starts here.
  std::optional<size_t> starts = std::nullopt;
};

/// A collective that may start and end elsewhere. Places are steps: what is at
/// step i happens before it; as many as there are steps: at the end.
struct Transfer {
  double seconds = 0;
  /// Where it stands, from where on its operands are known, and who reads it.
  size_t place = 0, ready = 0, need = 0;
  /// Starts at the step that says so: others have decided when. No events of it
  /// are planned.
  bool pinned = false;
  /// Collectives that must have ended before.
  llvm::SmallVector<size_t, 1> after;
  /// What its results take, and those of its operands that nobody reads behind
  /// its place.
  int64_t resultBytes = 0, heldBytes = 0;
};

struct OverlapPlan {
  struct Event {
    size_t step;
    bool starts; ///< or ends
    size_t transfer;
  };
  /// Seconds in which nothing is computed before a step, as it needs the
  /// transfer.
  struct Wait {
    size_t transfer, step;
    double seconds;
  };
  /// In the order in which they are to happen.
  std::vector<Event> events;
  std::vector<Wait> waits;
  /// Of all commands, as long as they take beside collectives, of all
  /// collectives, and of these what nothing hides.
  double compute = 0, communication = 0, exposed = 0;
};

/// `live`: bytes that are alive during each step where collectives start and
/// end at their places. At no step shall more than `budget` be.
/// `contention`: by which share of its time computing takes longer beside a
/// collective.
OverlapPlan planOverlap(llvm::ArrayRef<Step> steps,
                        llvm::ArrayRef<Transfer> transfers,
                        std::vector<int64_t> live, int64_t budget,
                        double contention = 0);

} // namespace cleave::schedule

#endif
