// Errors of the configuration, or of a file that it names: they are of no place
// in the model.

#ifndef CLEAVE_LIB_COMPILER_CONFIGERROR_H
#define CLEAVE_LIB_COMPILER_CONFIGERROR_H

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Location.h"

namespace cleave::compiler {

/// "TEXT", without a place before it.
inline mlir::InFlightDiagnostic configError(mlir::MLIRContext *context) {
  return mlir::emitError(mlir::UnknownLoc::get(context));
}

} // namespace cleave::compiler

#endif // CLEAVE_LIB_COMPILER_CONFIGERROR_H
