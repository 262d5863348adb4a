// Arithmetic on bf16.

#ifndef CLEAVE_CODEGEN_EMULATEBFLOAT16_H
#define CLEAVE_CODEGEN_EMULATEBFLOAT16_H

#include "mlir/IR/BuiltinOps.h"

namespace cleave::codegen {

/// Arithmetic on bf16 in f32, rounded after each operation: not every processor
/// knows bf16, and there is no library to call.
mlir::LogicalResult emulateBFloat16(mlir::ModuleOp kernels);

} // namespace cleave::codegen

#endif
