// Operations that can process a dimension tile by tile, so that tiles can be
// passed around among ranks instead of being gathered.

#ifndef CLEAVE_INTERFACES_STREAMING_H
#define CLEAVE_INTERFACES_STREAMING_H

#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Interfaces/Interfaces.h"

namespace cleave {

/// A streaming operation processes one dimension of its operands, the streamed
/// factor, tile by tile. This struct says which elements along that dimension
/// each element of a result reads. `own` and `streamed` are tensors of integer
/// indices along the results and along the streamed factor. A result element
/// whose `own` index is i reads only elements whose `streamed` index is between
/// i - before and i + after.
struct StreamReach {
  mlir::Value own, streamed;
  int64_t before = 0, after = 0;
};

/// A function that reduces each of the values over ranks by the given kind of
/// reduction, all in one message, and returns the reduced values in order.
using RankReduction = llvm::function_ref<llvm::SmallVector<mlir::Value>(
    mlir::ValueRange, dist::ReduceKind)>;

} // namespace cleave

#include "cleave/Interfaces/Streaming.h.inc"

#endif
