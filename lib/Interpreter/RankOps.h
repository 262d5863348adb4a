// Executes the operations that depend on ranks, for all ranks at once.

#ifndef CLEAVE_LIB_INTERPRETER_RANKOPS_H
#define CLEAVE_LIB_INTERPRETER_RANKOPS_H

#include "cleave/Interpreter/Interpreter.h"

namespace cleave {

/// Executes a dist operation with `operands[i][rank]` and `results[i][rank]`.
/// The results are initially zeros of the right type.
mlir::LogicalResult
interpretRankOp(mlir::Operation *op, dist::MeshAttr mesh,
                llvm::ArrayRef<const RankTensors *> operands,
                llvm::MutableArrayRef<RankTensors> results);

/// These two functions copy the elements of a rank's tile that are not padding:
/// from the tile into the whole tensor, and from the whole tensor into the
/// tile.
void pasteTile(Tensor &whole, const Tensor &tile, dist::MeshAttr mesh,
               dist::ShardingAttr sharding, int64_t rank);
void cutTile(Tensor &tile, const Tensor &whole, dist::MeshAttr mesh,
             dist::ShardingAttr sharding, int64_t rank);

} // namespace cleave

#endif
