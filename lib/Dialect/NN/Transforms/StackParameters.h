// Parameters that are only read as parts of one tensor.

#ifndef CLEAVE_LIB_DIALECT_NN_TRANSFORMS_STACKPARAMETERS_H
#define CLEAVE_LIB_DIALECT_NN_TRANSFORMS_STACKPARAMETERS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::nn {

/// Parameters [...] that are laid one on the other, [n, ...], become one
/// parameter, whose `nn.parts` says which tensors of the file it is made of.
/// What reads one alone reads a slice.
void stackParameters(mlir::func::FuncOp function);

/// Brings operations into the order in which a walk from the results meets
/// them, and parameters into the order of their first use: equal programs read
/// alike.
void sortByUse(mlir::func::FuncOp function);

} // namespace cleave::nn

#endif
