// Compiles kernel functions to PTX and machine code of GPUs.
//
// Each function marked `nn.kernel` becomes one kernel of a `gpu.module`, with a
// grid and a block that depend on shapes only. Its arguments are the addresses
// of the function's operands, then of its results, all in global memory and
// multiples of 16 unless `nn.align` says less, then the address of the rank's
// indices along the axes of the mesh (`axis_index` of cleave/runtime.h, i64).

#ifndef CLEAVE_CODEGEN_GPU_GPU_H
#define CLEAVE_CODEGEN_GPU_GPU_H

#include "mlir/IR/BuiltinOps.h"

#include <optional>
#include <string>
#include <vector>

namespace cleave::codegen {

/// The name of the `gpu.module` of generated kernels.
inline constexpr llvm::StringLiteral kGpuModule = "kernels";

/// What a launch needs to know of a kernel.
struct GpuKernel {
  std::string symbol;
  int64_t grid = 1, block = 1; ///< blocks, and threads of each
  int64_t sharedBytes = 0;     ///< of a block, all static
  /// Pointers that it takes; the last is that of the axis indices.
  int64_t arguments = 0;
};

/// The kernels of all kernel functions of `module`, in a module of their own
/// that has one `gpu.module`: gpu, scf, vector, arith, math, memref and LLVM
/// loads and stores. The module is left as it is.
mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>>
emitGpuKernels(mlir::ModuleOp module);

/// Expands mathematical functions and arithmetic on bf16 into operations that
/// every GPU has, by the same formulas as for CPUs, with the same bits. Only
/// functions in double precision are left.
mlir::LogicalResult expandGpuMath(mlir::ModuleOp kernels);

/// The kernels of a module that `emitGpuKernels` returned, in order.
std::vector<GpuKernel> gpuKernels(mlir::ModuleOp kernels);

/// Rewrites the output of `emitGpuKernels` into the LLVM and NVVM dialects.
mlir::LogicalResult lowerToNVVM(mlir::ModuleOp kernels);

/// Compiles the output of `emitGpuKernels`, which is consumed, to PTX for a
/// processor: sm_80, sm_90, sm_100. Equal modules give equal text.
mlir::FailureOr<std::string> compileToPtx(mlir::ModuleOp kernels,
                                          llvm::StringRef arch);

/// The same for several processors at once, in threads.
mlir::FailureOr<std::vector<std::string>>
compileAllToPtx(mlir::ModuleOp kernels, llvm::ArrayRef<std::string> archs);

/// Where the CUDA toolkit's assembler is: below CUDA_HOME, on the PATH, or
/// where it was when the build was configured. Nothing if there is none, or if
/// CUDA_HOME is empty.
std::optional<std::string> findPtxas();

/// Assembles PTX for a processor into the file `cubinPath`. Errors are reported
/// at `loc`.
mlir::LogicalResult assemblePtx(llvm::StringRef ptx, llvm::StringRef arch,
                                llvm::StringRef cubinPath, mlir::Location loc);

/// Compiles all kernel functions of `module`, which is left as it is, into
/// files of `folder`, and returns their names: kernels.sm_80.ptx, which any
/// device can compile, and kernels.ARCH.cubin for each architecture. If the
/// assembler is missing or does not know an architecture, the file is
/// kernels.ARCH.ptx instead, with a remark. Equal modules give equal bytes.
mlir::FailureOr<std::vector<std::string>>
compileGpuKernels(mlir::ModuleOp module,
                  llvm::ArrayRef<std::string> architectures,
                  llvm::StringRef folder);

} // namespace cleave::codegen

#endif
