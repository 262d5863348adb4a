// Integer division in kernels.
#ifndef CLEAVE_LIB_CODEGEN_INTEGERDIVISION_H
#define CLEAVE_LIB_CODEGEN_INTEGERDIVISION_H

#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace cleave::codegen {

/// Whether the operation is an integer division or remainder.
bool dividesIntegers(mlir::Operation *op);

/// Creates the operation with other operands, scalars or vectors, so that it
/// never traps: processors trap on x / 0 and on the smallest number / -1, which
/// can occur in padding and in lanes beyond the end of vectors. As in the
/// interpreter, x / 0 and its remainder are 0, and x / -1 is -x and wraps.
mlir::Value createDivision(mlir::ImplicitLocOpBuilder &builder,
                           mlir::Operation *op, mlir::Value dividend,
                           mlir::Value divisor);

} // namespace cleave::codegen

#endif
