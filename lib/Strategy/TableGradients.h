// Gradients of position tables.

#ifndef CLEAVE_LIB_STRATEGY_TABLEGRADIENTS_H
#define CLEAVE_LIB_STRATEGY_TABLEGRADIENTS_H

#include "cleave/Dialect/NN/Transforms/PositionFlow.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::strategy {

/// Rewrites the gradients of tables with one row per position as scatter-adds
/// over positions. Each rank then adds its positions to a replicated table.
void scatterTableGradients(mlir::func::FuncOp func,
                           const nn::PositionFlow &flow);

} // namespace cleave::strategy

#endif
