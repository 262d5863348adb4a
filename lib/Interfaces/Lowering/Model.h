// What the lowering files share: attaching a class and a decomposition as an
// external model, and spelling expressions over whole tensors.

#ifndef CLEAVE_LIB_INTERFACES_LOWERING_MODEL_H
#define CLEAVE_LIB_INTERFACES_LOWERING_MODEL_H

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Interfaces/Interfaces.h"

namespace cleave::lowering {

/// LoweringInterface for an operation that generated kernels speak already, or
/// that no generated kernel contains.
template <typename Op, KernelClass kernelClass>
struct PlainModel
    : LoweringInterface::ExternalModel<PlainModel<Op, kernelClass>, Op> {
  KernelClass getKernelClass(mlir::Operation *) const { return kernelClass; }
};

template <KernelClass kernelClass, typename... Ops>
void attachPlain(mlir::MLIRContext *context) {
  (Ops::template attachInterface<PlainModel<Ops, kernelClass>>(*context), ...);
}

/// Builds expressions over tensors of one shape where an operation stood.
class TensorExpr {
public:
  TensorExpr(mlir::OpBuilder &builder, mlir::Location loc)
      : builder(builder), loc(loc) {}

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

  /// `value` everywhere, in the type of `like`.
  mlir::Value splat(mlir::Value like, double value) {
    return splat(typeOf(like), value);
  }
  mlir::Value splat(mlir::RankedTensorType type, double value) {
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
  mlir::Value reduceRows(nn::Combiner combiner, mlir::Value value);

  mlir::OpBuilder &builder;
  mlir::Location loc;
};

using Decomposed = llvm::FailureOr<llvm::SmallVector<mlir::Value>>;

/// LoweringInterface with a decomposition.
template <typename Op, KernelClass kernelClass,
          Decomposed (*Rule)(Op, TensorExpr &)>
struct Model
    : LoweringInterface::ExternalModel<Model<Op, kernelClass, Rule>, Op> {
  KernelClass getKernelClass(mlir::Operation *) const { return kernelClass; }
  Decomposed decompose(mlir::Operation *op, mlir::OpBuilder &builder) const {
    TensorExpr expr(builder, op->getLoc());
    return Rule(mlir::cast<Op>(op), expr);
  }
};

template <typename Op, KernelClass kernelClass,
          Decomposed (*Rule)(Op, TensorExpr &)>
void attach(mlir::MLIRContext *context) {
  Op::template attachInterface<Model<Op, kernelClass, Rule>>(*context);
}

/// One function per family.
void attachElementwise(mlir::MLIRContext *context);
void attachShape(mlir::MLIRContext *context);
void attachRows(mlir::MLIRContext *context);
void attachTraining(mlir::MLIRContext *context);

} // namespace cleave::lowering

#endif
