// What all passes assume of the types of a program.

#ifndef CLEAVE_DIALECT_NN_TRANSFORMS_VERIFYTYPES_H
#define CLEAVE_DIALECT_NN_TRANSFORMS_VERIFYTYPES_H

#include "mlir/IR/Operation.h"

namespace cleave::nn {

/// Reports the first type in `root` that the passes do not support: a tensor of
/// unknown rank or size, with unsupported elements or with too many of them, in
/// kernels also one without elements, and an argument or result of a function
/// that is no tensor (except an integer without a role, such as the condition
/// of a branch). The parser of MLIR accepts all of them.
mlir::LogicalResult verifyTypes(mlir::Operation *root);

} // namespace cleave::nn

#endif // CLEAVE_DIALECT_NN_TRANSFORMS_VERIFYTYPES_H
