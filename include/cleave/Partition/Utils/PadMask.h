//===- PadMask.h - selects that replace padding -----------------*- C++ -*-===//
//
// Recognizes the operations by which LocalPlan masks the padding in a tile of a
// dimension of N elements:
//
//   count = N - tile_offset        (a scalar)
//   valid = iota dim < count       (count broadcast)
//   select valid, value, filler
//
//===----------------------------------------------------------------------===//

#ifndef CLEAVE_PARTITION_UTILS_PADMASK_H
#define CLEAVE_PARTITION_UTILS_PADMASK_H

#include "cleave/Dialect/Dist/IR/Dist.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

namespace cleave::partition {

/// A mask of the padding in tiles along dimension `dim`: elements whose global
/// index is `size` or more are replaced by `filler`. A tile has `tile`
/// elements, and a rank's coordinates on `axes` give the number of its tile.
struct PadMask {
  int64_t dim = 0, size = 0, tile = 0;
  dist::AxisListAttr axes;
  mlir::Attribute filler;

  /// Returns the mask that the operation applies; nullopt if it is no mask.
  static std::optional<PadMask> of(mlir::arith::SelectOp op);
  /// Whether both masks replace the same elements; they may replace them by
  /// different values.
  bool isAlike(const PadMask &other) const {
    return dim == other.dim && size == other.size && tile == other.tile &&
           axes == other.axes;
  }
};

} // namespace cleave::partition

#endif // CLEAVE_PARTITION_UTILS_PADMASK_H
