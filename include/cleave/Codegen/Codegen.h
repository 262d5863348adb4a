// Compiles kernel functions to a shared library.
//
// Each function marked `nn.kernel` becomes one symbol of the library, with the
// interface that the runtime calls (`cleave_kernel` in cleave/runtime.h); its
// arguments are the addresses of the function's operands, then of its results.

#ifndef CLEAVE_CODEGEN_CODEGEN_H
#define CLEAVE_CODEGEN_CODEGEN_H

#include "mlir/IR/BuiltinOps.h"

#include <string>

namespace cleave::codegen {

struct CodegenOptions {
  /// Name and features of the processor as LLVM spells them; empty: the host.
  std::string cpu, features;
  /// Bits of a vector register; 0: what the processor has.
  unsigned vectorBits = 0;
  /// Level of optimisation, 0 to 3.
  unsigned optLevel = 3;
  /// Threads that compile kernels; 0: all cores.
  unsigned threads = 0;
};

/// Fills in the name, features and vector width of this machine where options
/// do not give them.
CodegenOptions resolveOptions(CodegenOptions options);

/// Compiles all kernel functions of `module` into the shared library
/// `outputPath`. The module is left as it is. Equal modules and options give
/// equal bytes.
mlir::LogicalResult compileKernels(mlir::ModuleOp module,
                                   llvm::StringRef outputPath,
                                   const CodegenOptions &options = {});

/// The loops of all kernel functions of `module`, in a module of their own:
/// func, scf, vector, arith, math and LLVM loads and stores.
mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>>
emitKernels(mlir::ModuleOp module, const CodegenOptions &options);

/// Rewrites the output of `emitKernels` into the LLVM dialect.
mlir::LogicalResult lowerToLLVM(mlir::ModuleOp kernels);

} // namespace cleave::codegen

#endif
