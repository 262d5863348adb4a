// Gradients of tables of positions.

#ifndef CLEAVE_LIB_STRATEGY_TABLEGRADIENTS_H
#define CLEAVE_LIB_STRATEGY_TABLEGRADIENTS_H

#include "cleave/Dialect/NN/Transforms/PositionFlow.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::strategy {

/// Makes gradients of tables that have a row for each position sums over
/// positions: what a rank adds to a table that every rank has.
void scatterTableGradients(mlir::func::FuncOp func,
                           const nn::PositionFlow &flow);

} // namespace cleave::strategy

#endif
