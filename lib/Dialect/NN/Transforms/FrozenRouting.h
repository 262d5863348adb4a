// Finds routers whose choice of experts was replaced by constants in the
// export.

#ifndef CLEAVE_LIB_DIALECT_NN_TRANSFORMS_FROZENROUTING_H
#define CLEAVE_LIB_DIALECT_NN_TRANSFORMS_FROZENROUTING_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::nn {

/// Emits an error for each router whose choice of experts is a constant in the
/// model file. In such a model, nothing reads the indices of the largest router
/// scores. Instead the scores are read or masked at constant positions, which
/// are those that the router chose for the example input of the export.
llvm::LogicalResult checkRouting(mlir::func::FuncOp function);

} // namespace cleave::nn

#endif
