// Functions that need NVIDIA's libdevice.

#ifndef CLEAVE_LIB_CODEGEN_GPU_DEVICELIBRARY_H
#define CLEAVE_LIB_CODEGEN_GPU_DEVICELIBRARY_H

#include "mlir/IR/BuiltinOps.h"

namespace llvm {
class Module;
}

namespace cleave::codegen {

/// Replaces the remaining double-precision math operations by calls of
/// libdevice functions, one call per element.
void callDeviceLibrary(mlir::ModuleOp kernels);

/// Links the libdevice functions that `module` calls into it. Returns an error
/// message, empty on success.
std::string linkDeviceLibrary(llvm::Module &module);

} // namespace cleave::codegen

#endif
