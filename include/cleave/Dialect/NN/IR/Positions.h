// Analysis of the positions of tokens.

#ifndef CLEAVE_DIALECT_NN_IR_POSITIONS_H
#define CLEAVE_DIALECT_NN_IR_POSITIONS_H

#include "mlir/IR/Value.h"

namespace cleave::nn {

/// Returns whether each element of `positions`, [s] or [b, s], is its index
/// along the last dimension.
bool countsUp(mlir::Value positions);

} // namespace cleave::nn

#endif
