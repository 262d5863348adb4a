// Plans when collectives start and end; the order of commands is fixed.
//
// The list of commands is simulated with two resources: compute, which runs
// commands in order, and a link, which runs one collective after the other.
// Before each command, collectives with available operands start as long as the
// link has time for them: first those that are read soonest, not earlier than
// the backlog of the link requires, and as memory allows; then those that no
// command waits for, such as sums of gradients. A collective ends before its
// first reader or, to free the memory of its operands, when it is done.

#ifndef CLEAVE_LIB_SCHEDULE_OVERLAPPLAN_H
#define CLEAVE_LIB_SCHEDULE_OVERLAPPLAN_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace cleave::schedule {

/// A command that is not moved.
struct Step {
  double seconds = 0;
  /// A synchronous collective.
  bool communicates = false;
  /// The pinned transfer that starts here.
  std::optional<size_t> starts = std::nullopt;
};

/// A collective that may start and end elsewhere. Places are steps: step i
/// means before command i, and the number of steps means the end.
struct Transfer {
  double seconds = 0;
  /// The original place, the earliest start, and the first reader.
  size_t place = 0, ready = 0, need = 0;
  /// It starts at the step with `starts`, which another pass decided. No events
  /// are planned for it.
  bool pinned = false;
  /// Collectives that must have ended before.
  llvm::SmallVector<size_t, 1> after;
  /// Bytes of its results, and of those operands that nothing reads after its
  /// place.
  int64_t resultBytes = 0, heldBytes = 0;
};

struct OverlapPlan {
  struct Event {
    size_t step;
    bool starts; ///< or ends
    size_t transfer;
  };
  /// Seconds without compute before `step`, which needs `transfer`.
  struct Wait {
    size_t transfer, step;
    double seconds;
  };
  /// In the order in which they happen.
  std::vector<Event> events;
  std::vector<Wait> waits;
  /// Seconds: of all compute, including its slowdown by collectives; of all
  /// collectives; and of collectives that no compute hides.
  double compute = 0, communication = 0, exposed = 0;
};

/// `live`: live bytes during each step if collectives start and end at their
/// places. The plan keeps them at most `budget` at every step. `contention`:
/// the fraction by which compute is slower while a collective runs.
OverlapPlan planOverlap(llvm::ArrayRef<Step> steps,
                        llvm::ArrayRef<Transfer> transfers,
                        std::vector<int64_t> live, int64_t budget,
                        double contention = 0);

} // namespace cleave::schedule

#endif
