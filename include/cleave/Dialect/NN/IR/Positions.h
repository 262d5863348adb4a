// What is known of positions of tokens.

#ifndef CLEAVE_DIALECT_NN_IR_POSITIONS_H
#define CLEAVE_DIALECT_NN_IR_POSITIONS_H

#include "mlir/IR/Value.h"

namespace cleave::nn {

/// Whether `positions`, [s] or [b, s], are the index along the last dimension.
bool countsUp(mlir::Value positions);

} // namespace cleave::nn

#endif
