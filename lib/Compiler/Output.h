// Checks where an artifact may be written.

#ifndef CLEAVE_LIB_COMPILER_OUTPUT_H
#define CLEAVE_LIB_COMPILER_OUTPUT_H

#include "mlir/IR/MLIRContext.h"
#include "mlir/Support/LLVM.h"

#include <string>

namespace cleave::compiler {

/// Emits an error unless an artifact can be written to `folder`, before
/// anything is compiled. An existing folder is only replaced if it is an
/// artifact.
mlir::LogicalResult checkOutputFolder(const std::string &folder,
                                      mlir::MLIRContext *context);

} // namespace cleave::compiler

#endif // CLEAVE_LIB_COMPILER_OUTPUT_H
