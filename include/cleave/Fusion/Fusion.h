// Attributes of kernel functions, and the decomposition of operations into
// those for which kernel code can be generated.

#ifndef CLEAVE_FUSION_FUSION_H
#define CLEAVE_FUSION_FUSION_H

#include "cleave/Interfaces/ProgramWalk.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/bit.h"

#include <algorithm>

namespace cleave::kernels {

using cleave::kKernelAttr;
/// Attribute of a kernel: the number of its parallel iterations.
inline constexpr llvm::StringLiteral kExtentAttr = "nn.extent";
/// Attribute of a kernel: the smallest number of parallel iterations that is
/// worth a thread.
inline constexpr llvm::StringLiteral kGrainAttr = "nn.grain";
/// Attribute of a kernel: pairs (result, operand) of indices, for which the
/// result may reuse the operand's memory.
inline constexpr llvm::StringLiteral kInPlaceAttr = "nn.inplace";

/// Attribute of a kernel: the alignments in bytes of the addresses of its
/// operands, then of its results. If the attribute is absent on a GPU kernel,
/// all alignments are 16.
inline constexpr llvm::StringLiteral kAlignAttr = "nn.align";
/// The alignment in bytes if `nn.align` is absent. It is also the size in bytes
/// of the widest memory access.
inline constexpr int64_t kKernelAlignment = 16;

/// Returns the size in bytes of the widest memory access to a tensor of `bytes`
/// bytes: a power of two that is not larger than the tensor.
inline int64_t widestAccess(int64_t bytes) {
  return std::min<int64_t>(
      kKernelAlignment, llvm::bit_floor<uint64_t>(std::max<int64_t>(bytes, 1)));
}

/// Decomposes all operations under `root` into those for which kernel code can
/// be generated, by LoweringInterface::decompose. Calls `rewritten` with each
/// decomposed operation and the operations that replace it, before the
/// decomposed operation is erased.
void decomposeAll(mlir::Operation *root,
                  llvm::function_ref<void(mlir::Operation *,
                                          llvm::ArrayRef<mlir::Operation *>)>
                      rewritten = nullptr);

/// Plans the loops of a kernel function and sets its attributes `nn.kernel`,
/// `nn.extent`, `nn.grain` and `nn.inplace`. Fails if the kernel has no plan.
mlir::LogicalResult annotateKernel(mlir::func::FuncOp kernel);

} // namespace cleave::kernels

#endif
