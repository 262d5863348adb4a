// Chooses where a sequence of operations is cut into pipeline stages. Works on
// plain numbers, without IR.

#ifndef CLEAVE_LIB_STAGE_BALANCESTAGES_H
#define CLEAVE_LIB_STAGE_BALANCESTAGES_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <cstdint>

namespace cleave::stage {

/// The traffic across the position between two items, as the number of bytes
/// and of values.
struct Crossing {
  int64_t bytes = 0, values = 0;
  bool operator==(const Crossing &) const = default;
  bool operator<(const Crossing &other) const {
    return bytes != other.bytes ? bytes < other.bytes : values < other.values;
  }
  Crossing operator+(const Crossing &other) const {
    return {bytes + other.bytes, values + other.values};
  }
};

/// A sequence of items. `crossings[i]` is the traffic between items i - 1 and
/// i.
struct Line {
  llvm::SmallVector<double> seconds;
  llvm::SmallVector<int64_t> memory;
  llvm::SmallVector<Crossing> crossings;
};

/// The first item of each stage except stage 0, ascending.
struct Cuts {
  llvm::SmallVector<int64_t> begins;
  double slowest = 0;    // seconds of the slowest stage
  Crossing crossing;     // the sum over all cuts
  int64_t displaced = 0; // items placed in a stage that they do not want
};

/// The slowest stage may take longer than under the best balance, by at most
/// this fraction, if fewer bytes are then sent between stages.
inline constexpr double kSlack = 0.2;

/// Returns the number of positions with compute time before and after them.
int64_t countCutPoints(const Line &line);

/// Returns the best cuts (in the order of preference that pipe-mark-stages
/// documents) into `stages` stages, each of which has an item that takes time.
/// There must be at least `stages` - 1 cut points.
Cuts balance(const Line &line, int64_t stages);

/// Returns the cuts for which the fewest items are in a stage that `wants` does
/// not allow; among these, the cuts with the fewest bytes sent between stages.
/// `wants[i]` lists the stages that item i may be in; an empty list means all
/// stages. There must be at least as many items as stages.
Cuts follow(const Line &line,
            llvm::ArrayRef<llvm::SmallVector<int64_t, 1>> wants,
            int64_t stages);

} // namespace cleave::stage

#endif
