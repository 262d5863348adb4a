// Spelling expressions over whole tensors, and the formulas that are spelled
// with them. A formula says once what an operation computes; it becomes a
// kernel on one device, and, with joint reductions in place of plain ones, the
// local form where the dimension that it reduces is split.

#ifndef CLEAVE_INTERFACES_TENSOREXPR_H
#define CLEAVE_INTERFACES_TENSOREXPR_H

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Interfaces/Interfaces.h"

namespace cleave {

/// Builds expressions over tensors of one shape where an operation stood.
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

  /// Where floats are `best`, which is the largest of them; NaN is the largest.
  mlir::Value isLargest(mlir::Value value, mlir::Value best) {
    using Predicate = mlir::arith::CmpFPredicate;
    mlir::Value equal = make<mlir::arith::CmpFOp>(Predicate::OEQ, value, best);
    mlir::Value nan = make<mlir::arith::CmpFOp>(Predicate::UNO, value, value);
    return make<mlir::arith::OrIOp>(equal, nan);
  }

  /// `value` everywhere, in the type of `like`.
  mlir::Value splat(mlir::Value like, double value) {
    return splat(typeOf(like), value);
  }
  virtual mlir::Value splat(mlir::RankedTensorType type, double value) {
    return nn::createSplat(builder, loc, type, value);
  }
  /// An integer everywhere; unlike `splat` exact above 2^53.
  mlir::Value splatInt(mlir::RankedTensorType type, int64_t value) {
    return make<mlir::arith::ConstantOp>(mlir::DenseElementsAttr::get(
        type, builder.getIntegerAttr(type.getElementType(), value)));
  }

  static mlir::RankedTensorType typeOf(mlir::Value value) {
    return llvm::cast<mlir::RankedTensorType>(value.getType());
  }

  /// Repeats `value` to `type`; input dimension i becomes dimension dims[i].
  mlir::Value broadcast(mlir::Value value, mlir::RankedTensorType type,
                        llvm::ArrayRef<int64_t> dims);
  /// [b, s] -> [b, s, h]: every row its statistic.
  mlir::Value alongRows(mlir::Value statistic, mlir::RankedTensorType type);
  /// [h] -> [b, s, h]: every row the same features.
  mlir::Value alongFeatures(mlir::Value feature, mlir::RankedTensorType type);
  /// A rank-0 tensor everywhere.
  mlir::Value everywhere(mlir::Value scalar, mlir::RankedTensorType type) {
    return broadcast(scalar, type, {});
  }
  /// [b, s, h] -> [b, s].
  mlir::Value reduceRows(nn::Combiner combiner, mlir::Value value) {
    return reduce(combiner, value, typeOf(value).getRank() - 1);
  }

  // What differs where dimension `dim` is a tile of a split one.
  /// Combines all elements along the dimension, which disappears.
  virtual mlir::Value reduce(nn::Combiner combiner, mlir::Value value,
                             int64_t dim);
  /// The number of elements along the dimension.
  virtual int64_t extent(mlir::Value value, int64_t dim) {
    return typeOf(value).getDimSize(dim);
  }
  /// Integers of `type`: each element its index along the dimension.
  virtual mlir::Value index(mlir::RankedTensorType type, int64_t dim);

  mlir::OpBuilder &builder;
  mlir::Location loc;
};

using Decomposed = llvm::FailureOr<llvm::SmallVector<mlir::Value>>;

/// Formulas along the last dimension (of nn.argmax: along its own).
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
