// Expands mathematical functions of kernels into arithmetic.

#ifndef CLEAVE_CODEGEN_EXPANDMATH_H
#define CLEAVE_CODEGEN_EXPANDMATH_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/PatternMatch.h"

namespace cleave::codegen {

/// Rewrites the math operations of `kernels` into arithmetic on the same
/// scalars or vectors. After that, no operation in single precision calls a
/// library function.
mlir::LogicalResult expandMath(mlir::ModuleOp kernels);

} // namespace cleave::codegen

#endif
