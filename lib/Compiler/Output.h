// Where an artifact may be written.

#ifndef CLEAVE_LIB_COMPILER_OUTPUT_H
#define CLEAVE_LIB_COMPILER_OUTPUT_H

#include "mlir/IR/MLIRContext.h"
#include "mlir/Support/LLVM.h"

#include <string>

namespace cleave::compiler {

/// Emits an error unless an artifact can be written to `folder`, before
/// anything is compiled. Only a folder that is an artifact itself is replaced.
mlir::LogicalResult checkOutputFolder(const std::string &folder,
                                      mlir::MLIRContext *context);

} // namespace cleave::compiler

#endif // CLEAVE_LIB_COMPILER_OUTPUT_H
