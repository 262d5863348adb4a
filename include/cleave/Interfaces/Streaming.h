// Operations that can take a dimension tile by tile, so that tiles can go round
// among ranks instead of being gathered.

#ifndef CLEAVE_INTERFACES_STREAMING_H
#define CLEAVE_INTERFACES_STREAMING_H

#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Interfaces/Interfaces.h"

namespace cleave {

/// A result with the index `i` in `own` (tensor of integers) reads only
/// elements of the streamed factor whose index in `streamed` is at least i -
/// before and at most i + after.
struct StreamReach {
  mlir::Value own, streamed;
  int64_t before = 0, after = 0;
};

/// One message that combines values, in order, over ranks.
using RankReduction = llvm::function_ref<llvm::SmallVector<mlir::Value>(
    mlir::ValueRange, dist::ReduceKind)>;

} // namespace cleave

#include "cleave/Interfaces/Streaming.h.inc"

#endif
