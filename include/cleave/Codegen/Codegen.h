// Compiles kernel functions to a shared library.
//
// Each function marked `nn.kernel` becomes one symbol of the library with the
// interface that the runtime calls (`cleave_kernel` in cleave/runtime.h). The
// symbol's arguments are the addresses of the function's operands, then of its
// results.

#ifndef CLEAVE_CODEGEN_CODEGEN_H
#define CLEAVE_CODEGEN_CODEGEN_H

#include "mlir/IR/BuiltinOps.h"

#include <string>

namespace cleave::codegen {

struct CodegenOptions {
  /// The processor's name and features, in LLVM's spelling. Empty strings mean
  /// those of the host.
  std::string cpu, features;
  /// The width of vector registers in bits; 0 means the width that the
  /// processor has.
  unsigned vectorBits = 0;
  /// The optimization level, 0 to 3.
  unsigned optLevel = 3;
  /// The number of threads that compile kernels; 0 means all cores.
  unsigned threads = 0;
};

/// Fills in the name, features and vector width of this machine where `options`
/// leaves them empty.
CodegenOptions resolveOptions(CodegenOptions options);

/// Compiles all kernel functions of `module` into the shared library
/// `outputPath`. The module is not changed. Equal modules and options give
/// byte-identical libraries.
mlir::LogicalResult compileKernels(mlir::ModuleOp module,
                                   llvm::StringRef outputPath,
                                   const CodegenOptions &options = {});

/// Returns a new module with the loops of all kernel functions of `module`, in
/// the dialects func, scf, vector, arith and math, with LLVM loads and stores.
mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>>
emitKernels(mlir::ModuleOp module, const CodegenOptions &options);

/// Rewrites the output of `emitKernels` into the LLVM dialect.
mlir::LogicalResult lowerToLLVM(mlir::ModuleOp kernels);

} // namespace cleave::codegen

#endif
