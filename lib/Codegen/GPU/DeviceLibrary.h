// Functions that only the toolkit's library (libdevice) computes.

#ifndef CLEAVE_LIB_CODEGEN_GPU_DEVICELIBRARY_H
#define CLEAVE_LIB_CODEGEN_GPU_DEVICELIBRARY_H

#include "mlir/IR/BuiltinOps.h"

namespace llvm {
class Module;
}

namespace cleave::codegen {

/// Replaces mathematical functions in double precision that are left by calls
/// of libdevice, one for each element.
void callDeviceLibrary(mlir::ModuleOp kernels);

/// Links what `module` calls of libdevice into it. An error message where that
/// is not possible.
std::string linkDeviceLibrary(llvm::Module &module);

} // namespace cleave::codegen

#endif
