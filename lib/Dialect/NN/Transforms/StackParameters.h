// If a model stacks several parameters to one tensor and then reads this
// tensor, merges the parameters into one.

#ifndef CLEAVE_LIB_DIALECT_NN_TRANSFORMS_STACKPARAMETERS_H
#define CLEAVE_LIB_DIALECT_NN_TRANSFORMS_STACKPARAMETERS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::nn {

/// Merges parameters [...] that the model stacks to [n, ...] into one
/// parameter, whose `nn.parts` lists the tensors of the file. Operations that
/// read one of the original parameters read a slice of the new one.
void stackParameters(mlir::func::FuncOp function);

/// Sorts operations into the order in which a walk from the results meets them,
/// and parameters into the order of their first use, so that equal programs
/// have equal text.
void sortByUse(mlir::func::FuncOp function);

} // namespace cleave::nn

#endif
