//===- PadMask.h - selects that replace padding -----------------*- C++ -*-===//
//
// The form in which LocalPlan writes a mask of padding:
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

/// A mask that replaces the elements of dimension `dim` with global index
/// `size` or more by `filler`. Tiles have `tile` elements and are numbered by
/// `axes`.
struct PadMask {
  int64_t dim = 0, size = 0, tile = 0;
  dist::AxisListAttr axes;
  mlir::Attribute filler;

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
