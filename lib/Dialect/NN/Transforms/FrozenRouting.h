// Finds routers whose choice of experts was replaced by constants in the
// export.

#ifndef CLEAVE_LIB_DIALECT_NN_TRANSFORMS_FROZENROUTING_H
#define CLEAVE_LIB_DIALECT_NN_TRANSFORMS_FROZENROUTING_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::nn {

/// Reports router scores that are read or masked at positions that the file
/// fixes, while nothing reads which experts were chosen.
llvm::LogicalResult checkRouting(mlir::func::FuncOp function);

} // namespace cleave::nn

#endif
