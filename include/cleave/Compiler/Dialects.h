// What a context needs before it holds programs of any phase.

#ifndef CLEAVE_COMPILER_DIALECTS_H
#define CLEAVE_COMPILER_DIALECTS_H

#include "mlir/IR/MLIRContext.h"

namespace cleave::compiler {

/// Loads all dialects and interface models.
void loadDialects(mlir::MLIRContext &context);

} // namespace cleave::compiler

#endif // CLEAVE_COMPILER_DIALECTS_H
