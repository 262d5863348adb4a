// Where a line of operations is cut into stages: plain numbers, no IR.

#ifndef CLEAVE_LIB_STAGE_BALANCESTAGES_H
#define CLEAVE_LIB_STAGE_BALANCESTAGES_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <cstdint>

namespace cleave::stage {

/// What crosses a place between two items: bytes, and how many values.
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

/// Items in a line. `crossings[i]` is what crosses between items i - 1 and i.
struct Line {
  llvm::SmallVector<double> seconds;
  llvm::SmallVector<int64_t> memory;
  llvm::SmallVector<Crossing> crossings;
};

/// The first item of each stage but the first, ascending.
struct Cuts {
  llvm::SmallVector<int64_t> begins;
  double slowest = 0;    // seconds of the slowest stage
  Crossing crossing;     // the sum over all cuts
  int64_t strangers = 0; // items in a stage that they do not want
};

/// How much slower the slowest stage may be than it must be, where that saves
/// bytes.
inline constexpr double kSlack = 0.2;

/// How many places there are where time passes on both sides.
int64_t countCutPoints(const Line &line);

/// The best cuts (see pipe-mark-stages) into `stages`, of which each has an
/// item that takes time. There must be at least `stages` - 1 cut points.
Cuts balance(const Line &line, int64_t stages);

/// The cuts with the fewest items that `wants` another stage, and of these with
/// the fewest bytes. `wants[i]` has the stages that item i may be in; empty:
/// all. There must be at least as many items as stages.
Cuts follow(const Line &line,
            llvm::ArrayRef<llvm::SmallVector<int64_t, 1>> wants,
            int64_t stages);

} // namespace cleave::stage

#endif
