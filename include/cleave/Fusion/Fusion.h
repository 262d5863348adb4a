// Kernel functions: how they are marked, and their vocabulary.

#ifndef CLEAVE_FUSION_FUSION_H
#define CLEAVE_FUSION_FUSION_H

#include "cleave/Interfaces/ProgramWalk.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/bit.h"

#include <algorithm>

namespace cleave::kernels {

using cleave::kKernelAttr;
/// The parallel iterations are [0, extent).
inline constexpr llvm::StringLiteral kExtentAttr = "nn.extent";
/// Fewer iterations than this are not worth a thread of their own.
inline constexpr llvm::StringLiteral kGrainAttr = "nn.grain";
/// Pairs (result, operand) of which the result may take the operand's memory.
inline constexpr llvm::StringLiteral kInPlaceAttr = "nn.inplace";

/// The alignment in bytes of the addresses of operands, then of results. On
/// GPUs it is 16 if the attribute is absent.
inline constexpr llvm::StringLiteral kAlignAttr = "nn.align";
/// The alignment without that attribute, and the bytes of the widest access.
inline constexpr int64_t kKernelAlignment = 16;

/// The bytes of the widest access to a tensor of `bytes`: no access is longer
/// than the tensor.
inline int64_t widestAccess(int64_t bytes) {
  return std::min<int64_t>(
      kKernelAlignment, llvm::bit_floor<uint64_t>(std::max<int64_t>(bytes, 1)));
}

/// Rewrites everything under `root` into the kernel vocabulary, by
/// LoweringInterface::decompose. `rewritten` is called with each operation and
/// its replacement, before the operation is erased.
void decomposeAll(mlir::Operation *root,
                  llvm::function_ref<void(mlir::Operation *,
                                          llvm::ArrayRef<mlir::Operation *>)>
                      rewritten = nullptr);

/// Plans a kernel function and sets its extent, grain and in-place attributes.
mlir::LogicalResult annotateKernel(mlir::func::FuncOp kernel);

} // namespace cleave::kernels

#endif
