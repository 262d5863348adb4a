// Integer division in kernels.
#ifndef CLEAVE_LIB_CODEGEN_INTEGERDIVISION_H
#define CLEAVE_LIB_CODEGEN_INTEGERDIVISION_H

#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace cleave::codegen {

/// Whether the operation divides integers, or takes a remainder.
bool dividesIntegers(mlir::Operation *op);

/// The operation on other operands, scalars or vectors, so that it never traps:
/// a processor stops the program for x / 0 and for the smallest number / -1,
/// which stand in padding and behind the end of vectors. As in the interpreter,
/// x / 0 and its remainder are 0, and x / -1 is -x and wraps.
mlir::Value createDivision(mlir::ImplicitLocOpBuilder &builder,
                           mlir::Operation *op, mlir::Value dividend,
                           mlir::Value divisor);

} // namespace cleave::codegen

#endif
