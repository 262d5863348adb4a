//===- Regions.h - loops and branches ---------------------------*- C++ -*-===//
//
// scf.for and scf.if over tensors: what a loop carries, and what the branches
// give, has one sharding wherever it appears. Scalars (bounds, conditions) are
// the same on all ranks and are copied as they are.
//
//===----------------------------------------------------------------------===//

#ifndef CLEAVE_PARTITION_UTILS_REGIONS_H
#define CLEAVE_PARTITION_UTILS_REGIONS_H

#include "mlir/Dialect/SCF/IR/SCF.h"

namespace cleave::partition {

/// All places of one tensor that a loop carries or a branch gives.
struct Carried {
  mlir::Value init, argument; // null for branches
  llvm::SmallVector<mlir::Value, 2> yielded;
  mlir::Value result;
};

inline bool isLoopOrBranch(mlir::Operation *op) {
  return llvm::isa<mlir::scf::ForOp, mlir::scf::IfOp>(op);
}

/// Of scf.for and scf.if: one entry for each result.
llvm::SmallVector<Carried> carriedBy(mlir::Operation *op);

/// Whether the bounds and the step of the loop are constants.
bool hasStaticTripCount(mlir::scf::ForOp loop);

/// Reports regions other than those of scf.for with a static trip count and
/// scf.if, and carried values that are no tensors.
mlir::LogicalResult checkRegions(mlir::Operation *op);

/// Whether the operation works on scalars alone, or reads the one element of a
/// tensor: it is copied into the per-rank program.
bool isScalarOp(mlir::Operation *op);

} // namespace cleave::partition

#endif
