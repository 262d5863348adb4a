// What a context needs before it holds programs of any phase.

#ifndef CLEAVE_COMPILER_DIALECTS_H
#define CLEAVE_COMPILER_DIALECTS_H

#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/MLIRContext.h"

namespace cleave::compiler {

/// Adds all dialects and interface models.
void registerDialects(mlir::DialectRegistry &registry);

/// Loads all dialects and interface models.
void loadDialects(mlir::MLIRContext &context);

} // namespace cleave::compiler

#endif // CLEAVE_COMPILER_DIALECTS_H
