// Passes over kernels that replace arithmetic on bf16 by arithmetic on f32.

#ifndef CLEAVE_CODEGEN_EMULATEBFLOAT16_H
#define CLEAVE_CODEGEN_EMULATEBFLOAT16_H

#include "mlir/IR/BuiltinOps.h"

namespace cleave::codegen {

/// Computes mathematical functions of bf16 in f32, rounding after each
/// function, because the formulas of `expandMath` exist for f32 only. Runs
/// before `expandMath`.
void widenBFloat16Math(mlir::ModuleOp kernels);

/// Computes arithmetic on bf16 in f32, rounding after each operation, because
/// not every processor has bf16 arithmetic, and kernels are linked with no
/// library that emulates it.
mlir::LogicalResult emulateBFloat16(mlir::ModuleOp kernels);

/// Stores all bf16 values as 16-bit integers; runs after all bf16 arithmetic is
/// expanded. On a processor without bf16, LLVM would split masked accesses and
/// some vectors, and call a library function to convert each element to f32 and
/// back.
void storeBFloat16AsIntegers(mlir::ModuleOp kernels);

} // namespace cleave::codegen

#endif
