// Errors of the configuration, or of a file that the configuration names. They
// have no location in the model.

#ifndef CLEAVE_SUPPORT_ERRORS_H
#define CLEAVE_SUPPORT_ERRORS_H

#include "cleave/Support/Messages.h"
#include "cleave/io/Error.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Location.h"

namespace cleave {

/// Begins an error that is printed without a location.
inline mlir::InFlightDiagnostic configError(mlir::MLIRContext *context) {
  return mlir::emitError(mlir::UnknownLoc::get(context));
}

/// Like configError, for an error whose cause is the machine (a full disk, a
/// failing device) and not the input.
inline mlir::InFlightDiagnostic machineError(mlir::MLIRContext *context) {
  mlir::InFlightDiagnostic error = configError(context);
  markAsMachineFault(*error.getUnderlyingDiagnostic());
  return error;
}

/// Reports an error that was thrown by a reader or writer of files.
inline mlir::LogicalResult report(mlir::MLIRContext *context,
                                  const Error &error) {
  mlir::InFlightDiagnostic reported = configError(context);
  if (error.code == ExitCode::failed)
    markAsMachineFault(*reported.getUnderlyingDiagnostic());
  else
    markAsInputFault(*reported.getUnderlyingDiagnostic());
  return reported << error.what();
}

} // namespace cleave

#endif // CLEAVE_SUPPORT_ERRORS_H
