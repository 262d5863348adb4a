// Builds expressions over whole tensors, and formulas that consist of such
// expressions. A formula defines what an operation computes, and is used twice.
// On one device it becomes a kernel. If the operation reduces a sharded
// dimension, the formula becomes the operation's per-rank code, in which each
// reduction also combines the results of the ranks.

#ifndef CLEAVE_INTERFACES_TENSOREXPR_H
#define CLEAVE_INTERFACES_TENSOREXPR_H

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Interfaces/Interfaces.h"
#include "cleave/Support/ValueUtils.h"

namespace cleave {

/// Builds the operations that replace an nn operation: elementwise operations
/// on tensors of equal shape, broadcasts and reductions.
class TensorExpr {
public:
  TensorExpr(mlir::OpBuilder &builder, mlir::Location loc)
      : builder(builder), loc(loc) {}
  virtual ~TensorExpr() = default;

  template <typename Op, typename... Args> mlir::Value make(Args &&...args) {
    return Op::create(builder, loc, std::forward<Args>(args)...);
  }
  mlir::Value add(mlir::Value a, mlir::Value b) {
    return make<mlir::arith::AddFOp>(a, b);
  }
  mlir::Value sub(mlir::Value a, mlir::Value b) {
    return make<mlir::arith::SubFOp>(a, b);
  }
  mlir::Value mul(mlir::Value a, mlir::Value b) {
    return make<mlir::arith::MulFOp>(a, b);
  }
  mlir::Value mul(mlir::Value a, double b) { return mul(a, splat(a, b)); }
  mlir::Value add(mlir::Value a, double b) { return add(a, splat(a, b)); }
  mlir::Value div(mlir::Value a, mlir::Value b) {
    return make<mlir::arith::DivFOp>(a, b);
  }
  mlir::Value neg(mlir::Value a) { return make<mlir::arith::NegFOp>(a); }
  mlir::Value exp(mlir::Value a) { return make<mlir::math::ExpOp>(a); }
  mlir::Value select(mlir::Value condition, mlir::Value a, mlir::Value b) {
    return make<mlir::arith::SelectOp>(condition, a, b);
  }
  mlir::Value compare(mlir::arith::CmpIPredicate predicate, mlir::Value a,
                      mlir::Value b) {
    return make<mlir::arith::CmpIOp>(predicate, a, b);
  }

  /// Compares each element of `value` with `best`, the largest element along a
  /// dimension. The returned mask is true for equal elements and for NaN, which
  /// counts as the largest.
  mlir::Value isLargest(mlir::Value value, mlir::Value best) {
    using Predicate = mlir::arith::CmpFPredicate;
    mlir::Value equal = make<mlir::arith::CmpFOp>(Predicate::OEQ, value, best);
    mlir::Value nan = make<mlir::arith::CmpFOp>(Predicate::UNO, value, value);
    return make<mlir::arith::OrIOp>(equal, nan);
  }

  /// Returns a tensor of the type of `like` with all elements equal to `value`.
  mlir::Value splat(mlir::Value like, double value) {
    return splat(typeOf(like), value);
  }
  virtual mlir::Value splat(mlir::RankedTensorType type, double value) {
    return nn::createSplat(builder, loc, type, value);
  }
  /// Like `splat`, but for an integer, which may exceed 2^53 and stays exact.
  mlir::Value splatInt(mlir::RankedTensorType type, int64_t value) {
    return make<mlir::arith::ConstantOp>(mlir::DenseElementsAttr::get(
        type, builder.getIntegerAttr(type.getElementType(), value)));
  }

  static mlir::RankedTensorType typeOf(mlir::Value value) {
    return cleave::typeOf(value);
  }

  /// Broadcasts `value` to `type`; input dimension i becomes dimension dims[i].
  mlir::Value broadcast(mlir::Value value, mlir::RankedTensorType type,
                        llvm::ArrayRef<int64_t> dims);
  /// Broadcasts a statistic of each row: [b, s] -> [b, s, h].
  mlir::Value alongRows(mlir::Value statistic, mlir::RankedTensorType type);
  /// Broadcasts a value of each feature: [h] -> [b, s, h].
  mlir::Value alongFeatures(mlir::Value feature, mlir::RankedTensorType type);
  /// Broadcasts a rank-0 tensor.
  mlir::Value everywhere(mlir::Value scalar, mlir::RankedTensorType type) {
    return broadcast(scalar, type, {});
  }
  /// [b, s, h] -> [b, s].
  mlir::Value reduceRows(nn::Combiner combiner, mlir::Value value) {
    return reduce(combiner, value, typeOf(value).getRank() - 1);
  }

  // Partitioning overrides the functions below for the case that dimension
  // `dim` is sharded and the tensor is one tile of it. `reduce` reduces over
  // dimension `dim` and removes it.
  virtual mlir::Value reduce(nn::Combiner combiner, mlir::Value value,
                             int64_t dim);
  /// Returns the number of elements along dimension `dim`.
  virtual int64_t extent(mlir::Value value, int64_t dim) {
    return typeOf(value).getDimSize(dim);
  }
  /// Returns a tensor of the integer type `type`, in which each element has the
  /// value of its index along dimension `dim`.
  virtual mlir::Value index(mlir::RankedTensorType type, int64_t dim);

  mlir::OpBuilder &builder;
  mlir::Location loc;
};

using Decomposed = llvm::FailureOr<llvm::SmallVector<mlir::Value>>;

/// Each formula works along the last dimension of its operand; argMax works
/// along the dimension `dim` of nn.argmax.
namespace formula {
Decomposed softmax(nn::SoftmaxOp op, TensorExpr &e);
Decomposed layerNorm(nn::LayerNormOp op, TensorExpr &e);
Decomposed layerNormGrad(nn::LayerNormGradOp op, TensorExpr &e);
Decomposed rmsNorm(nn::RmsNormOp op, TensorExpr &e);
Decomposed rmsNormGrad(nn::RmsNormGradOp op, TensorExpr &e);
Decomposed crossEntropy(nn::CrossEntropyOp op, TensorExpr &e);
Decomposed crossEntropyGrad(nn::CrossEntropyGradOp op, TensorExpr &e);
Decomposed argMax(nn::ArgMaxOp op, TensorExpr &e);
} // namespace formula

} // namespace cleave

#endif
