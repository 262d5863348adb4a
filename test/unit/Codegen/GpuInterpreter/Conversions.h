// Elementwise operations whose result has another element type than their
// operands.

#ifndef CLEAVE_TEST_UNIT_CODEGEN_GPUINTERPRETER_CONVERSIONS_H
#define CLEAVE_TEST_UNIT_CODEGEN_GPUINTERPRETER_CONVERSIONS_H

#include "Program.h"

namespace cleave::gpusim {

/// Returns the function of a conversion between types; null for other
/// operations.
Function conversion(mlir::Operation *op, mlir::Type from, mlir::Type to);

/// Returns the function of a comparison, a classification of floats, or a
/// select; null for other operations.
Function predicate(mlir::Operation *op, mlir::Type from);

} // namespace cleave::gpusim

#endif
