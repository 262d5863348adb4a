// Parts of nn-select-library, one file per family.

#ifndef CLEAVE_LIB_CONVERSION_TORT_SELECTLIBRARY_H
#define CLEAVE_LIB_CONVERSION_TORT_SELECTLIBRARY_H

#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Dialect/RT/IR/RT.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave {

/// Replaces the contraction by a product (and perhaps copies), or by
/// elementwise work where it contracts nothing or `device` has no good product.
void selectEinsum(nn::EinsumOp op, program::Device device);

/// Joins what follows the product with it: scale, bias, activation, sums. On
/// CUDA devices it takes along the derivative of gelu as well, and one in bf16
/// its bias.
void fuseEpilogue(rt::GemmOp op, program::Device device);

/// Joins sums over the rows of an operand with a product that contracts these
/// rows: the gradient of a bias with that of the weights. For CUDA devices.
void fuseOperandSums(mlir::func::FuncOp func);

/// Attention and its derivative on strided views.
mlir::LogicalResult selectAttention(nn::AttentionOp op);
mlir::LogicalResult selectAttentionGrad(nn::AttentionGradOp op);

/// Products of rows with chosen matrices, on strided views, and their order.
mlir::LogicalResult selectGroupedDot(nn::GroupedDotOp op);
mlir::LogicalResult selectGroupedOuter(nn::GroupedOuterOp op);

mlir::LogicalResult selectPositionInExpert(nn::PositionInExpertOp op);

/// A value on the first rank of a group and zeros elsewhere, elementwise.
void expandKeepFirst(dist::KeepFirstOp op);

/// Convolutions and derivatives of them as one command each, where the runtime
/// has it on CUDA devices; others stay.
void selectConvolutions(mlir::func::FuncOp func);

/// Convolutions and pools as slices, pads, products and elementwise work.
void expandConv(nn::ConvOp op);
void expandConvInputGrad(nn::ConvInputGradOp op);
void expandConvFilterGrad(nn::ConvFilterGradOp op);
void expandPool(nn::PoolOp op);
void expandPoolGrad(nn::PoolGradOp op);

/// A window of a split dimension as permutations and index arithmetic.
mlir::LogicalResult expandWindow(dist::WindowOp op);

/// pad(a) + pad(b) + ... of boxes that lie end to end -> nn.concat, so that the
/// gradient of a split can be written in place. `add` is the last of the sum;
/// each sum may be widened and rounded bf16.
void mergePads(mlir::arith::AddFOp add);

} // namespace cleave

#endif
