// The attributes that mark kernel functions, and the rewriting of operations
// into those that kernels are generated from.

#ifndef CLEAVE_FUSION_FUSION_H
#define CLEAVE_FUSION_FUSION_H

#include "cleave/Interfaces/ProgramWalk.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/bit.h"

#include <algorithm>

namespace cleave::kernels {

using cleave::kKernelAttr;
/// The number of a kernel's parallel iterations, which are [0, extent).
inline constexpr llvm::StringLiteral kExtentAttr = "nn.extent";
/// The number of parallel iterations that one thread should at least get.
inline constexpr llvm::StringLiteral kGrainAttr = "nn.grain";
/// Pairs (result, operand): the result may reuse the operand's memory.
inline constexpr llvm::StringLiteral kInPlaceAttr = "nn.inplace";

/// The alignments in bytes of the addresses of a kernel's operands, then of its
/// results. If the attribute is absent on a GPU kernel, all alignments are 16.
inline constexpr llvm::StringLiteral kAlignAttr = "nn.align";
/// The alignment if `nn.align` is absent, which is also the bytes of the widest
/// access.
inline constexpr int64_t kKernelAlignment = 16;

/// Returns the bytes of the widest access to a tensor of `bytes`. No access is
/// longer than the tensor.
inline int64_t widestAccess(int64_t bytes) {
  return std::min<int64_t>(
      kKernelAlignment, llvm::bit_floor<uint64_t>(std::max<int64_t>(bytes, 1)));
}

/// Decomposes all operations under `root` into those that kernels are generated
/// from, by LoweringInterface::decompose. `rewritten` is called with each
/// operation and its replacement, before the operation is erased.
void decomposeAll(mlir::Operation *root,
                  llvm::function_ref<void(mlir::Operation *,
                                          llvm::ArrayRef<mlir::Operation *>)>
                      rewritten = nullptr);

/// Plans a kernel function and sets its extent, grain and in-place attributes.
mlir::LogicalResult annotateKernel(mlir::func::FuncOp kernel);

} // namespace cleave::kernels

#endif
