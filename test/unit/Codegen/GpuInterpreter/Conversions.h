// Elementwise operations from one element type to another.

#ifndef CLEAVE_TEST_UNIT_CODEGEN_GPUINTERPRETER_CONVERSIONS_H
#define CLEAVE_TEST_UNIT_CODEGEN_GPUINTERPRETER_CONVERSIONS_H

#include "Program.h"

namespace cleave::gpusim {

/// Conversions between types; null for other operations.
Function conversion(mlir::Operation *op, mlir::Type from, mlir::Type to);

/// Comparisons, classes of floats, and the choice by a condition; null for
/// other operations.
Function predicate(mlir::Operation *op, mlir::Type from);

} // namespace cleave::gpusim

#endif
