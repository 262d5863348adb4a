// Compiles kernel functions to PTX and machine code of GPUs.
//
// Each function marked `nn.kernel` becomes one kernel of a `gpu.module`, with a
// grid and a block that depend on shapes only. The kernel's arguments are the
// addresses of the function's operands and results in global memory, aligned to
// 16 bytes unless `nn.align` states a smaller alignment. The last argument is
// the address of the rank's indices along the mesh axes (`axis_index` of
// cleave/runtime.h, i64).

#ifndef CLEAVE_CODEGEN_GPU_GPU_H
#define CLEAVE_CODEGEN_GPU_GPU_H

#include "mlir/IR/BuiltinOps.h"

#include <optional>
#include <string>
#include <vector>

namespace cleave::codegen {

/// The name of the `gpu.module` of generated kernels.
inline constexpr llvm::StringLiteral kGpuModule = "kernels";

/// The properties of a kernel that are needed to launch it.
struct GpuKernel {
  std::string symbol;
  /// The number of blocks of the grid, and the number of threads of a block.
  int64_t grid = 1, block = 1;
  /// The shared memory of a block in bytes; all of it is statically allocated.
  int64_t sharedBytes = 0;
  /// The number of pointer arguments. The last one points to an array with the
  /// rank's index on each mesh axis.
  int64_t arguments = 0;
};

/// Returns a new module with one `gpu.module` that has a kernel for each kernel
/// function of `module`, in the dialects gpu, scf, vector, arith, math and
/// memref, with LLVM loads and stores. `module` is not changed.
mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>>
emitGpuKernels(mlir::ModuleOp module);

/// Expands mathematical functions and arithmetic on bf16 into operations that
/// every GPU has, with the formulas that kernels on CPUs use, so that both give
/// bitwise equal results. Only math functions in double precision remain.
mlir::LogicalResult expandGpuMath(mlir::ModuleOp kernels);

/// Returns the kernels of a module that `emitGpuKernels` created, in order.
std::vector<GpuKernel> gpuKernels(mlir::ModuleOp kernels);

/// Rewrites the output of `emitGpuKernels` into the LLVM and NVVM dialects.
mlir::LogicalResult lowerToNVVM(mlir::ModuleOp kernels);

/// Compiles the output of `emitGpuKernels`, which is consumed, to PTX for one
/// GPU architecture: sm_80, sm_90 or sm_100. Equal modules give identical PTX.
mlir::FailureOr<std::string> compileToPtx(mlir::ModuleOp kernels,
                                          llvm::StringRef arch);

/// Compiles the output of `emitGpuKernels` to PTX for several architectures in
/// parallel threads.
mlir::FailureOr<std::vector<std::string>>
compileAllToPtx(mlir::ModuleOp kernels, llvm::ArrayRef<std::string> archs);

/// Returns the path of ptxas, the CUDA toolkit's assembler: below CUDA_HOME, on
/// the PATH, or where it was when the build was configured. Returns nullopt if
/// there is no ptxas or if CUDA_HOME is set but empty.
std::optional<std::string> findPtxas();

/// Assembles PTX for one architecture into the file `cubinPath`. Errors are
/// reported at `loc`.
mlir::LogicalResult assemblePtx(llvm::StringRef ptx, llvm::StringRef arch,
                                llvm::StringRef cubinPath, mlir::Location loc);

/// Compiles all kernel functions of `module`, which is not changed, into files
/// of `folder`, and returns the file names: kernels.sm_80.ptx, which the driver
/// of any device can compile, and kernels.ARCH.cubin for each architecture. If
/// ptxas is missing or does not support an architecture, kernels.ARCH.ptx is
/// written instead, with a remark. Equal modules give byte-identical files.
mlir::FailureOr<std::vector<std::string>>
compileGpuKernels(mlir::ModuleOp module,
                  llvm::ArrayRef<std::string> architectures,
                  llvm::StringRef folder);

} // namespace cleave::codegen

#endif
