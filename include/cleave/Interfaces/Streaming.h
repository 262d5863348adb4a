// Operations that can process a dimension tile by tile, so that tiles can be
// passed around among ranks instead of being gathered.

#ifndef CLEAVE_INTERFACES_STREAMING_H
#define CLEAVE_INTERFACES_STREAMING_H

#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Interfaces/Interfaces.h"

namespace cleave {

/// A result with index `i` in `own` (a tensor of integers) reads only elements
/// of the streamed factor with an index in `streamed` from i - before to i +
/// after.
struct StreamReach {
  mlir::Value own, streamed;
  int64_t before = 0, after = 0;
};

/// Sends one message that combines the values, in order, over ranks.
using RankReduction = llvm::function_ref<llvm::SmallVector<mlir::Value>(
    mlir::ValueRange, dist::ReduceKind)>;

} // namespace cleave

#include "cleave/Interfaces/Streaming.h.inc"

#endif
