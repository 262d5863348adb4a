// Checks the tensors of an ONNX file before it is imported.

#ifndef CLEAVE_IMPORT_ONNX_CHECKTENSORS_H
#define CLEAVE_IMPORT_ONNX_CHECKTENSORS_H

#include "cleave/Import/ONNX/Import.h"

namespace cleave {

/// Emits an error with everything that is not supported in an ONNX file if one
/// of its initializers cannot be used, for example because it is damaged. Emits
/// a warning if external files lack bytes of initializers.
llvm::LogicalResult checkTensors(llvm::StringRef path,
                                 mlir::MLIRContext &context,
                                 const ImportOptions &options);

} // namespace cleave

#endif
