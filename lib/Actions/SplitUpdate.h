// Splits @update of a pipeline stage into several functions, at the sums over
// several stages (pipe.sum_stages).

#ifndef CLEAVE_LIB_ACTIONS_SPLITUPDATE_H
#define CLEAVE_LIB_ACTIONS_SPLITUPDATE_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::actions {

/// The update of a stage depends on sums over all stages, such as the norm of
/// the gradients. This function replaces @update by @update.0, @update.1, ...,
/// which run one after another. A part returns the operands of sums over
/// stages. The runtime then adds up the operands of all stages, and a later
/// part has the sums as arguments.
///
/// With `chained`, a rank may have several stages, which run each part one
/// after another. Each of them adds the operand of the rank's previous stage to
/// its own operand. So the last one returns the total of the rank.
void splitUpdate(mlir::func::FuncOp func, bool chained);

} // namespace cleave::actions

#endif
