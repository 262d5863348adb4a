//===- Barriers.h - what recomputation waits for ----------------*- C++ -*-===//

#ifndef CLEAVE_LIB_PARTITION_EXPERTS_BARRIERS_H
#define CLEAVE_LIB_PARTITION_EXPERTS_BARRIERS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::partition {

/// The second operand of `nn.rematerialize` is a barrier: it only controls
/// scheduling. If nothing else reads the barrier value, this function replaces
/// it by the values from which it is computed. For example, the operation then
/// waits for tokens at the ranks of the experts, and these tokens need not be
/// sent back for the barrier alone.
void relaxBarriers(mlir::func::FuncOp func);

} // namespace cleave::partition

#endif // CLEAVE_LIB_PARTITION_EXPERTS_BARRIERS_H
