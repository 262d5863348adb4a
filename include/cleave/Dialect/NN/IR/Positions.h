// Analysis of the positions of tokens.

#ifndef CLEAVE_DIALECT_NN_IR_POSITIONS_H
#define CLEAVE_DIALECT_NN_IR_POSITIONS_H

#include "mlir/IR/Value.h"

namespace cleave::nn {

/// Returns whether the operations that compute `positions`, of shape [s] or
/// [b, s], show that each element equals its index along the last dimension.
bool countsUp(mlir::Value positions);

} // namespace cleave::nn

#endif
