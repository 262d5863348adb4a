//===- Regions.h - loops and branches ---------------------------*- C++ -*-===//
//
// Helpers for scf.for and scf.if over tensors. A tensor that a loop carries has
// the same sharding before the loop, in the loop and after it, and a tensor
// that both branches of an scf.if yield has the same sharding in both. Scalars
// (bounds, conditions) are the same on all ranks; the operations that compute
// them are copied into the per-rank program.
//
//===----------------------------------------------------------------------===//

#ifndef CLEAVE_PARTITION_UTILS_REGIONS_H
#define CLEAVE_PARTITION_UTILS_REGIONS_H

#include "mlir/Dialect/SCF/IR/SCF.h"

namespace cleave::partition {

/// The values that represent one tensor in a loop or branch: the loop's initial
/// value and block argument, the values that the blocks yield, and the result.
struct Carried {
  mlir::Value init, argument; // null for branches
  llvm::SmallVector<mlir::Value, 2> yielded;
  mlir::Value result;
};

inline bool isLoopOrBranch(mlir::Operation *op) {
  return llvm::isa<mlir::scf::ForOp, mlir::scf::IfOp>(op);
}

/// Returns, for each result of an scf.for or scf.if, the values that represent
/// the same tensor as the result.
llvm::SmallVector<Carried> carriedBy(mlir::Operation *op);

/// Whether the bounds and the step of the loop are constants.
bool hasStaticTripCount(mlir::scf::ForOp loop);

/// Reports an error for an operation with regions that is neither an scf.if nor
/// an scf.for with a static trip count, and for carried values that are not
/// tensors.
mlir::LogicalResult checkRegions(mlir::Operation *op);

/// Reports an error for a sharding constraint (dist.constrain) in the region of
/// an operation that has a sharding rule, such as nn.scan. The rule already
/// determines the shardings of all values in the region.
mlir::LogicalResult checkUnconstrained(mlir::Operation *op);

/// Whether the operation only works on scalars or reads the single element of a
/// tensor. It is then copied into the per-rank program.
bool isScalarOp(mlir::Operation *op);

} // namespace cleave::partition

#endif
