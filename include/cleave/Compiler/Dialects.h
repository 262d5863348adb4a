// The dialects that a context needs for programs of any phase.

#ifndef CLEAVE_COMPILER_DIALECTS_H
#define CLEAVE_COMPILER_DIALECTS_H

#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/MLIRContext.h"

namespace cleave::compiler {

/// Registers the dialects of all phases down to the commands of a rank, with
/// their interface models.
void registerDialects(mlir::DialectRegistry &registry);

/// Registers the dialects of all phases, and also those into which kernels are
/// lowered, for tools that read a file of any phase.
void registerAllDialects(mlir::DialectRegistry &registry);

/// Loads the dialects of registerDialects.
void loadDialects(mlir::MLIRContext &context);

} // namespace cleave::compiler

#endif // CLEAVE_COMPILER_DIALECTS_H
