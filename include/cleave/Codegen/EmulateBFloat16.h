// Arithmetic on bf16.

#ifndef CLEAVE_CODEGEN_EMULATEBFLOAT16_H
#define CLEAVE_CODEGEN_EMULATEBFLOAT16_H

#include "mlir/IR/BuiltinOps.h"

namespace cleave::codegen {

/// Mathematical functions of bf16 in f32, rounded after each: there are
/// formulas for f32. Before `expandMath`.
void widenBFloat16Math(mlir::ModuleOp kernels);

/// Arithmetic on bf16 in f32, rounded after each operation: not every processor
/// knows bf16, and there is no library to call.
mlir::LogicalResult emulateBFloat16(mlir::ModuleOp kernels);

/// All bf16 as integers of 16 bits, once nothing computes with it: where a
/// processor does not know bf16, LLVM takes masked accesses and some vectors
/// apart, and converts each element to f32 and back by a library.
void storeBFloat16AsIntegers(mlir::ModuleOp kernels);

} // namespace cleave::codegen

#endif
