// Finds residuals: values of the forward pass that the backward pass reads.

#ifndef CLEAVE_LIB_STRATEGY_RESIDUALS_H
#define CLEAVE_LIB_STRATEGY_RESIDUALS_H

#include "mlir/IR/Value.h"

namespace cleave::strategy {

/// The value of the forward pass that `value` was saved from, looking through
/// operations that only move elements; null if it was not saved.
mlir::Value savedFrom(mlir::Value value);

} // namespace cleave::strategy

#endif
