// Reorders commands so that exposed collectives are overlapped with compute.
//
// The given order is valid, and a plan states which collectives are exposed and
// for how long. For each exposed collective, independent commands move between
// its start and its first reader. Commands from before the start move first,
// the nearest first, because this extends their operands' lifetimes the least.
// For example, a weight gradient moves after the start of the collective that
// sends the input gradient. Then commands from after the reader move. All other
// commands keep their order. This is list scheduling within a window of
// commands, with the given order as the priority.

#ifndef CLEAVE_LIB_SCHEDULE_FILLWAITS_H
#define CLEAVE_LIB_SCHEDULE_FILLWAITS_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <vector>

namespace cleave::schedule {

/// A command of the list that is reordered. It refers to other commands by
/// their positions in this list.
struct Placed {
  /// The compute time. A command with time 0 is only moved together with
  /// commands that depend on it, or that it depends on.
  double seconds = 0;
  bool moves = false;
  /// True if the command already overlaps some other collective than the one
  /// whose wait is to be filled. Such a command is not moved.
  bool fills = false;
  /// The commands that this command must come after, and those that it must
  /// come before.
  llvm::SmallVector<size_t, 4> after, before;
};

/// An exposed collective, the command that reads its result, and the seconds
/// for which this command waits.
struct Wait {
  size_t collective = 0, reader = 0;
  double seconds = 0;
};

/// Moves commands of `list` into the given waits, as explained at the top of
/// this file. `waits` must be sorted by the positions of the readers. Returns
/// the new order: element i is the old position of the command that is now at
/// position i.
std::vector<size_t> fillWaits(std::vector<Placed> list,
                              llvm::ArrayRef<Wait> waits);

} // namespace cleave::schedule

#endif
