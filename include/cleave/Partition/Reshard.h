//===- Reshard.h - moves a value from one layout to another -----*- C++ -*-===//

#ifndef CLEAVE_PARTITION_RESHARD_H
#define CLEAVE_PARTITION_RESHARD_H

#include "cleave/Dialect/Dist/IR/Layout.h"
#include "mlir/IR/Builders.h"

namespace cleave::partition {

/// One step of a reshard. `dim` and `concat` as in the operations.
struct Move {
  enum Kind { AllReduce, ReduceScatter, KeepFirst, AllToAll, AllGather, Slice, Permute };
  Kind kind;
  int64_t dim = 0, concat = 0;
  dist::Axes axes;
  dist::ReduceKind reduce = dist::ReduceKind::Sum;
  /// The layout after the move.
  dist::Layout after;
};

/// The moves that lead from one layout of a tensor of `shape` to another. Sums
/// first (a reduce-scatter where the target is split), then slices that cost
/// nothing, exchanges of dimensions, gathers, and last the slices that had to
/// wait. Never more is gathered than one dimension at a time needs.
llvm::SmallVector<Move> planReshard(const dist::MeshAxes &mesh, llvm::ArrayRef<int64_t> shape,
                                    const dist::Layout &from, const dist::Layout &to);

/// Bytes that a rank sends for the moves.
int64_t sentBytes(const dist::MeshAxes &mesh, llvm::ArrayRef<int64_t> shape, int64_t elementBytes,
                  const dist::Layout &from, llvm::ArrayRef<Move> moves);

/// Emits the moves on the local value of a tensor of `type`.
mlir::Value emitReshard(mlir::OpBuilder &builder, mlir::Location loc, const dist::MeshAxes &mesh,
                        mlir::RankedTensorType type, mlir::Value local, const dist::Layout &from,
                        llvm::ArrayRef<Move> moves, dist::Purpose purpose);

} // namespace cleave::partition

#endif
