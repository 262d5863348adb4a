// Finds residuals: values of the forward pass that the backward pass reads.

#ifndef CLEAVE_LIB_STRATEGY_RESIDUALS_H
#define CLEAVE_LIB_STRATEGY_RESIDUALS_H

#include "mlir/IR/Value.h"

namespace cleave::strategy {

/// Returns the value of the forward pass that `value`, a value of the backward
/// pass, was saved from. Looks through operations that only move elements. Null
/// if `value` was not saved.
mlir::Value savedFrom(mlir::Value value);

} // namespace cleave::strategy

#endif
