// What the backward pass reads of the forward pass.

#ifndef CLEAVE_LIB_STRATEGY_RESIDUALS_H
#define CLEAVE_LIB_STRATEGY_RESIDUALS_H

#include "mlir/IR/Value.h"

namespace cleave::strategy {

/// The value of the forward pass that `value` is, by way of a save and of
/// operations that move its elements; null where it is none.
mlir::Value savedFrom(mlir::Value value);

} // namespace cleave::strategy

#endif
