//===- Regions.h - loops and branches ---------------------------*- C++ -*-===//
//
// scf.for and scf.if over tensors. A value that a loop carries or the branches
// yield has the same sharding everywhere. Scalars (bounds, conditions) are the
// same on all ranks and are copied.
//
//===----------------------------------------------------------------------===//

#ifndef CLEAVE_PARTITION_UTILS_REGIONS_H
#define CLEAVE_PARTITION_UTILS_REGIONS_H

#include "mlir/Dialect/SCF/IR/SCF.h"

namespace cleave::partition {

/// All occurrences of one tensor that a loop carries or a branch yields.
struct Carried {
  mlir::Value init, argument; // null for branches
  llvm::SmallVector<mlir::Value, 2> yielded;
  mlir::Value result;
};

inline bool isLoopOrBranch(mlir::Operation *op) {
  return llvm::isa<mlir::scf::ForOp, mlir::scf::IfOp>(op);
}

/// For scf.for and scf.if: one entry for each result.
llvm::SmallVector<Carried> carriedBy(mlir::Operation *op);

/// Whether the bounds and the step of the loop are constants.
bool hasStaticTripCount(mlir::scf::ForOp loop);

/// Reports region operations other than scf.if and scf.for with a static trip
/// count, and carried values that are not tensors.
mlir::LogicalResult checkRegions(mlir::Operation *op);

/// Whether the operation only works on scalars or reads the single element of a
/// tensor. It is then copied into the per-rank program.
bool isScalarOp(mlir::Operation *op);

} // namespace cleave::partition

#endif
