// Integer division in kernels.
#ifndef CLEAVE_LIB_CODEGEN_INTEGERDIVISION_H
#define CLEAVE_LIB_CODEGEN_INTEGERDIVISION_H

#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace cleave::codegen {

/// Returns whether the operation is an integer division or remainder.
bool dividesIntegers(mlir::Operation *op);

/// Creates a division or remainder like `op` on the given operands (scalars or
/// vectors) that never traps. Processors trap on x / 0 and on the smallest
/// number / -1, which can occur in padding and in lanes past the end of the
/// data. As in the interpreter, x / 0 and its remainder are 0, and x / -1 is -x
/// and wraps.
mlir::Value createDivision(mlir::ImplicitLocOpBuilder &builder,
                           mlir::Operation *op, mlir::Value dividend,
                           mlir::Value divisor);

} // namespace cleave::codegen

#endif
