// Splits @update of a stage at the sums over stages.

#ifndef CLEAVE_LIB_ACTIONS_SPLITUPDATE_H
#define CLEAVE_LIB_ACTIONS_SPLITUPDATE_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::actions {

/// Replaces @update by @update.0, @update.1, ...: each part returns operands of
/// sums over stages, and a later part has the sums as arguments. With
/// `chained`, a rank adds the sum of its earlier stages to each operand.
void splitUpdate(mlir::func::FuncOp func, bool chained);

} // namespace cleave::actions

#endif
