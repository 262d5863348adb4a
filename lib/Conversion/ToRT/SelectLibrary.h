// The parts of nn-select-library, one file per family.

#ifndef CLEAVE_LIB_CONVERSION_TORT_SELECTLIBRARY_H
#define CLEAVE_LIB_CONVERSION_TORT_SELECTLIBRARY_H

#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Dialect/RT/IR/RT.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave {

/// Replaces the contraction by a matrix product (with copies if needed), or by
/// elementwise operations if nothing is contracted or a library on `device`
/// would be slow.
void selectEinsum(nn::EinsumOp op, program::Device device);

/// Fuses the operations after the product into it: scale, bias, activation,
/// sums. On CUDA devices also the derivative of gelu, and the bias of a bf16
/// product.
void fuseEpilogue(rt::GemmOp op, program::Device device);

/// Fuses sums over the rows of an operand into a product that contracts these
/// rows, such as a bias gradient with the weight gradient. For CUDA devices.
void fuseOperandSums(mlir::func::FuncOp func);

/// Lower attention and its derivative to commands on strided views.
mlir::LogicalResult selectAttention(nn::AttentionOp op);
mlir::LogicalResult selectAttentionGrad(nn::AttentionGradOp op);

/// Lower grouped products, and positions of slots in their experts, to commands
/// on strided views.
mlir::LogicalResult selectGroupedDot(nn::GroupedDotOp op);
mlir::LogicalResult selectGroupedOuter(nn::GroupedOuterOp op);

mlir::LogicalResult selectPositionInExpert(nn::PositionInExpertOp op);

/// Expands to elementwise operations: the value on the first rank of a group,
/// zeros elsewhere.
void expandKeepFirst(dist::KeepFirstOp op);

/// Lowers convolutions and their derivatives to one command each, if the
/// runtime supports it on CUDA devices; others remain.
void selectConvolutions(mlir::func::FuncOp func);

/// Expand convolutions and pools to slices, pads, products and elementwise
/// operations.
void expandConv(nn::ConvOp op);
void expandConvInputGrad(nn::ConvInputGradOp op);
void expandConvFilterGrad(nn::ConvFilterGradOp op);
void expandPool(nn::PoolOp op);
void expandPoolGrad(nn::PoolGradOp op);

/// Expands a halo exchange to permutations and index arithmetic.
mlir::LogicalResult expandWindow(dist::WindowOp op);

/// Rewrites pad(a) + pad(b) + ... of adjacent boxes to nn.concat, so that the
/// gradient of a split can be written in place. `add` is the last addition;
/// each sum may be extended and rounded bf16.
void mergePads(mlir::arith::AddFOp add);

} // namespace cleave

#endif
