//===- Barriers.h - what recomputation waits for ----------------*- C++ -*-===//

#ifndef CLEAVE_LIB_PARTITION_EXPERTS_BARRIERS_H
#define CLEAVE_LIB_PARTITION_EXPERTS_BARRIERS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::partition {

/// The second operand of `nn.rematerialize` only controls scheduling. If the
/// barrier is its only reader, this replaces it by the values that it is
/// computed from. For example, the barrier waits for tokens at the experts,
/// instead of forcing a combine of these tokens.
void relaxBarriers(mlir::func::FuncOp func);

} // namespace cleave::partition

#endif // CLEAVE_LIB_PARTITION_EXPERTS_BARRIERS_H
