// Shardings of attention over split positions: Ulysses splits heads over its
// ranks, a ring splits positions into tiles.

#ifndef CLEAVE_LIB_STRATEGY_ATTENTIONPINS_H
#define CLEAVE_LIB_STRATEGY_ATTENTIONPINS_H

#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Dialect/NN/Transforms/PositionFlow.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::strategy {

struct AttentionAxes {
  dist::AxisRefAttr ring, ulysses; ///< or null
  /// The axes of tensor parallelism. They split the heads of attention, as the
  /// axis of Ulysses does.
  llvm::SmallVector<dist::AxisRefAttr> features;
};

/// Inserts sharding constraints around each attention of `func` whose positions
/// are split. `unsplit` collects the sequence lengths of attentions whose
/// positions are not split, so that each length causes one warning.
mlir::LogicalResult pinAttention(mlir::func::FuncOp func, dist::MeshOp mesh,
                                 const nn::PositionFlow &flow,
                                 const AttentionAxes &axes,
                                 llvm::SmallDenseSet<int64_t> &unsplit);

} // namespace cleave::strategy

#endif
