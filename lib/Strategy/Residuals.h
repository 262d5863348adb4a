// Finds residuals: values of the forward pass that the backward pass reads.

#ifndef CLEAVE_LIB_STRATEGY_RESIDUALS_H
#define CLEAVE_LIB_STRATEGY_RESIDUALS_H

#include "mlir/IR/Value.h"

namespace cleave::strategy {

/// If `value`, a value of the backward pass, is a saved value of the forward
/// pass, returns the original value. Looks through operations that only move
/// elements. Returns null if `value` was not saved.
mlir::Value savedFrom(mlir::Value value);

} // namespace cleave::strategy

#endif
