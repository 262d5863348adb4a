// An order of commands in which something is computed where collectives were
// waited for.
//
// Commands are in an order that works, and a plan says which collectives are
// waited for and how long. For each of these, commands that neither lead to it
// nor follow from it move between its start and its first reader: those before
// it first, from the nearest on (the gradient of a matrix, where the input's
// has to be sent), as their operands live on the shortest; then those behind
// its reader. All else keeps its order. This is list scheduling with the given
// order as the priority, of commands within a window.

#ifndef CLEAVE_LIB_SCHEDULE_FILLWAITS_H
#define CLEAVE_LIB_SCHEDULE_FILLWAITS_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <vector>

namespace cleave::schedule {

/// What stands at one place of the list; others are named by their places.
struct Placed {
  /// For which it computes; 0: it may come along, but fills nothing.
  double seconds = 0;
  bool moves = false;
  /// It hides another collective where it is.
  bool fills = false;
  /// What must come before it, and behind it.
  llvm::SmallVector<size_t, 4> after, before;
};

/// A collective that is waited for, who waits, and how long.
struct Wait {
  size_t collective = 0, reader = 0;
  double seconds = 0;
};

/// `waits` in the order of their readers. Returns the places in their new
/// order.
std::vector<size_t> fillWaits(std::vector<Placed> list,
                              llvm::ArrayRef<Wait> waits);

} // namespace cleave::schedule

#endif
