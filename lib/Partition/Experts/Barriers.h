//===- Barriers.h - what recomputation waits for ----------------*- C++ -*-===//

#ifndef CLEAVE_LIB_PARTITION_EXPERTS_BARRIERS_H
#define CLEAVE_LIB_PARTITION_EXPERTS_BARRIERS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::partition {

/// `nn.rematerialize` asks when, not what. So one that waits for a value which
/// nothing else reads waits for what that is computed from instead: rows at the
/// experts, say, rather than rows that would come back for its sake.
void relaxBarriers(mlir::func::FuncOp func);

} // namespace cleave::partition

#endif // CLEAVE_LIB_PARTITION_EXPERTS_BARRIERS_H
