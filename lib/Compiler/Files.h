// Reads files that the configuration or the caller names, with errors as
// diagnostics: the readers of runtime/io throw exceptions, which these
// functions convert to diagnostics.

#ifndef CLEAVE_LIB_COMPILER_FILES_H
#define CLEAVE_LIB_COMPILER_FILES_H

#include "cleave/io/Array.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/Support/LLVM.h"

#include <string>

namespace cleave::compiler {

/// Emits an error unless `path` is a file that can be read. `wanted` describes
/// the expected file in the message, such as "a model".
mlir::LogicalResult requireFile(mlir::MLIRContext *context,
                                const std::string &path,
                                const std::string &wanted);

/// Returns the bytes of a file.
mlir::FailureOr<std::string> readFile(mlir::MLIRContext *context,
                                      const std::string &path);

/// Reads the array of an .npy file. Errors begin with `about`.
mlir::FailureOr<Array> readArray(mlir::MLIRContext *context,
                                 const std::string &path,
                                 const std::string &about);

} // namespace cleave::compiler

#endif // CLEAVE_LIB_COMPILER_FILES_H
