// The functions of the pass nn-select-library. Each kind of operation
// (contractions, attention, convolutions, ...) has a source file.

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

/// Fuses operations that read the product into it: scale, bias, activation and
/// sums; on CUDA devices also the derivative of gelu, and the bias of a bf16
/// product.
void fuseEpilogue(rt::GemmOp op, program::Device device);

/// Fuses sums over the rows of an operand into a product that contracts these
/// rows, such as the bias gradient into the weight gradient. Only for CUDA
/// devices.
void fuseOperandSums(mlir::func::FuncOp func);

/// Replace attention, and the gradient of attention, by library commands that
/// read and write their tensors through strided views.
mlir::LogicalResult selectAttention(nn::AttentionOp op);
mlir::LogicalResult selectAttentionGrad(nn::AttentionGradOp op);

/// Replace the operations of mixture-of-experts layers by library commands that
/// read and write their tensors through strided views. The operations are the
/// grouped matrix products, and nn.position_in_expert, which computes the
/// position of each token-expert pair among the pairs with the same expert.
mlir::LogicalResult selectGroupedDot(nn::GroupedDotOp op);
mlir::LogicalResult selectGroupedOuter(nn::GroupedOuterOp op);

mlir::LogicalResult selectPositionInExpert(nn::PositionInExpertOp op);

/// Expands dist.keep_first, which keeps a value on the first rank of each group
/// and replaces it by zero on the others, to elementwise operations.
void expandKeepFirst(dist::KeepFirstOp op);

/// Replaces each convolution, and each gradient of a convolution, by one
/// command if the runtime supports it on CUDA devices. The other convolutions
/// remain.
void selectConvolutions(mlir::func::FuncOp func);

/// Expand convolutions and pools to slices, pads, products and elementwise
/// operations.
void expandConv(nn::ConvOp op);
void expandConvInputGrad(nn::ConvInputGradOp op);
void expandConvFilterGrad(nn::ConvFilterGradOp op);
void expandPool(nn::PoolOp op);
void expandPoolGrad(nn::PoolGradOp op);

/// Expands dist.window, which gives each rank a window of a sharded dimension
/// (halo exchange), to permutations and index arithmetic.
mlir::LogicalResult expandWindow(dist::WindowOp op);

/// Rewrites a sum of zero-padded values, pad(a) + pad(b) + ..., to nn.concat(a,
/// b, ...) if the values fill adjacent ranges. Such a sum is the gradient of a
/// split; its terms are then written directly into the result. `add` is the
/// last addition. A bf16 addition has extended operands and a rounded result.
void mergePads(mlir::arith::AddFOp add);

} // namespace cleave

#endif
