// The layouts of attention where its positions are split: heads over the ranks
// of Ulysses, tiles of positions over those of a ring.

#ifndef CLEAVE_LIB_STRATEGY_ATTENTIONPINS_H
#define CLEAVE_LIB_STRATEGY_ATTENTIONPINS_H

#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Dialect/NN/Transforms/PositionFlow.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::strategy {

struct AttentionAxes {
  dist::AxisRefAttr ring, ulysses; ///< or null
  /// Those of tensor parallelism, which split heads, too.
  llvm::SmallVector<dist::AxisRefAttr> features;
};

/// Places constraints around each attention of `func` over split positions.
/// `unsplit`: lengths of attention that is not split of which a warning was
/// given.
mlir::LogicalResult pinAttention(mlir::func::FuncOp func, dist::MeshOp mesh,
                                 const nn::PositionFlow &flow,
                                 const AttentionAxes &axes,
                                 llvm::SmallDenseSet<int64_t> &unsplit);

} // namespace cleave::strategy

#endif
