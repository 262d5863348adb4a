// Arithmetic on bf16.

#ifndef CLEAVE_CODEGEN_EMULATEBFLOAT16_H
#define CLEAVE_CODEGEN_EMULATEBFLOAT16_H

#include "mlir/IR/BuiltinOps.h"

namespace cleave::codegen {

/// Computes mathematical functions of bf16 in f32, rounding after each: only
/// f32 has formulas. Runs before `expandMath`.
void widenBFloat16Math(mlir::ModuleOp kernels);

/// Computes arithmetic on bf16 in f32, rounding after each operation: not every
/// processor has bf16, and there is no library to call.
mlir::LogicalResult emulateBFloat16(mlir::ModuleOp kernels);

/// Stores all bf16 as integers of 16 bits, once nothing computes with it. On a
/// processor without bf16, LLVM would split masked accesses and some vectors,
/// and convert each element to f32 and back by a library.
void storeBFloat16AsIntegers(mlir::ModuleOp kernels);

} // namespace cleave::codegen

#endif
