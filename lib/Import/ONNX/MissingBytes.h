// Weights whose bytes are not in the files.

#ifndef CLEAVE_LIB_IMPORT_ONNX_MISSINGBYTES_H
#define CLEAVE_LIB_IMPORT_ONNX_MISSINGBYTES_H

#include "mlir/IR/Location.h"
#include "llvm/ADT/ArrayRef.h"

#include <string>

namespace cleave::importer {

/// Warns of tensors whose bytes are missing. Each of `tensors` names one, and
/// says what is missing; the list is not empty.
void warnOfMissingBytes(mlir::Location loc,
                        llvm::ArrayRef<std::string> tensors);

} // namespace cleave::importer

#endif
