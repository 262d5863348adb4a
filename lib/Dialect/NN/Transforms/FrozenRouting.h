// Routers whose choice an export has replaced by constants.

#ifndef CLEAVE_LIB_DIALECT_NN_TRANSFORMS_FROZENROUTING_H
#define CLEAVE_LIB_DIALECT_NN_TRANSFORMS_FROZENROUTING_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::nn {

/// Reports scores of routers that are read, or counted, at places that the file
/// fixes while nothing reads which experts were chosen.
llvm::LogicalResult checkRouting(mlir::func::FuncOp function);

} // namespace cleave::nn

#endif
