// The operations that know of ranks, on all ranks at once.

#ifndef CLEAVE_LIB_INTERPRETER_RANKOPS_H
#define CLEAVE_LIB_INTERPRETER_RANKOPS_H

#include "cleave/Interpreter/Interpreter.h"

namespace cleave {

/// Executes a dist operation. `operands[i][rank]`, `results[i][rank]`; the
/// results are typed zeros.
mlir::LogicalResult
interpretRankOp(mlir::Operation *op, dist::MeshAttr mesh,
                llvm::ArrayRef<const RankTensors *> operands,
                llvm::MutableArrayRef<RankTensors> results);

/// Copies the elements of a rank's tile that are no padding into the whole, and
/// out of it.
void pasteTile(Tensor &whole, const Tensor &tile, dist::MeshAttr mesh,
               dist::ShardingAttr sharding, int64_t rank);
void cutTile(Tensor &tile, const Tensor &whole, dist::MeshAttr mesh,
             dist::ShardingAttr sharding, int64_t rank);

} // namespace cleave

#endif
