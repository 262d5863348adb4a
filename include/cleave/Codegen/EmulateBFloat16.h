// Arithmetic on bf16.

#ifndef CLEAVE_CODEGEN_EMULATEBFLOAT16_H
#define CLEAVE_CODEGEN_EMULATEBFLOAT16_H

#include "mlir/IR/BuiltinOps.h"

namespace cleave::codegen {

/// Mathematical functions of bf16 in f32, rounded after each: there are formulas
/// for f32. Before `expandMath`.
void widenBFloat16Math(mlir::ModuleOp kernels);

/// Arithmetic on bf16 in f32, rounded after each operation: not every processor
/// knows bf16, and there is no library to call.
mlir::LogicalResult emulateBFloat16(mlir::ModuleOp kernels);

} // namespace cleave::codegen

#endif
