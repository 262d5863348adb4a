// Reorders commands so that exposed collectives are overlapped with compute.
//
// The given order is valid, and a plan says which collectives are waited for
// and how long. For each of these, independent commands move between its start
// and its first reader: first commands from before its start, the nearest
// first, as their operands live on for the shortest time (for example, the
// gradient of a weight, when the gradient of the input is sent); then commands
// from after its reader. All other commands keep their order. This is list
// scheduling with the given order as the priority, within a window of commands.

#ifndef CLEAVE_LIB_SCHEDULE_FILLWAITS_H
#define CLEAVE_LIB_SCHEDULE_FILLWAITS_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <vector>

namespace cleave::schedule {

/// A command of the list. Commands refer to each other by their positions.
struct Placed {
  /// Compute time; a command with 0 may be moved along, but fills nothing.
  double seconds = 0;
  bool moves = false;
  /// Whether it hides another collective at its present position.
  bool fills = false;
  /// Commands that must precede it (`after`) or follow it (`before`).
  llvm::SmallVector<size_t, 4> after, before;
};

/// An exposed collective, the reader that waits for it, and how long.
struct Wait {
  size_t collective = 0, reader = 0;
  double seconds = 0;
};

/// Takes `waits` in the order of their readers. Returns the commands' old
/// positions in their new order.
std::vector<size_t> fillWaits(std::vector<Placed> list,
                              llvm::ArrayRef<Wait> waits);

} // namespace cleave::schedule

#endif
