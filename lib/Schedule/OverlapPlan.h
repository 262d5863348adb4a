// Plans when collectives start and end; the order of commands is fixed.
//
// The list of commands is simulated with two resources: compute, which runs
// commands in order, and a link, which runs one collective after the other.
// Before each command, collectives with available operands start as long as the
// link has time for them. Collectives with the earliest readers come first;
// they start no earlier than the backlog of the link requires, and only if
// memory allows. Then come collectives that no command waits for, such as
// all-reduces of gradients. A collective ends before its first reader or, to
// free the memory of its operands, when it is done.

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

/// A collective that may start earlier and end later than at its original
/// place. A place is an index in the list of commands: place i is directly
/// before command i, and the place after the last command is the end of the
/// list.
struct Transfer {
  double seconds = 0;
  /// The places of the collective itself, of its earliest start, and of its
  /// first reader.
  size_t place = 0, ready = 0, need = 0;
  /// True if another pass has already chosen where the collective starts; this
  /// plan then adds no start or end for it. `Step::starts` of the command at
  /// that place is the index of this transfer.
  bool pinned = false;
  /// The collectives that must have ended before this one starts.
  llvm::SmallVector<size_t, 1> after;
  /// The bytes of the collective's results, and of the operands that nothing
  /// reads after its original place.
  int64_t resultBytes = 0, heldBytes = 0;
};

struct OverlapPlan {
  struct Event {
    size_t step;
    bool starts; ///< or ends
    size_t transfer;
  };
  /// The seconds for which compute stops before `step`, because the step needs
  /// the result of `transfer`.
  struct Wait {
    size_t transfer, step;
    double seconds;
  };
  /// The starts and ends of collectives, in order.
  std::vector<Event> events;
  std::vector<Wait> waits;
  /// The seconds of all compute (including its slowdown by concurrent
  /// collectives), of all collectives, and of exposed communication.
  double compute = 0, communication = 0, exposed = 0;
};

/// `live` has the live bytes during each step if all collectives start and end
/// at their original places. The plan keeps live bytes within `budget` at every
/// step. `contention` is the fraction by which compute is slower while a
/// collective runs.
OverlapPlan planOverlap(llvm::ArrayRef<Step> steps,
                        llvm::ArrayRef<Transfer> transfers,
                        std::vector<int64_t> live, int64_t budget,
                        double contention = 0);

} // namespace cleave::schedule

#endif
