// What the lowering files share: attaching a class and a decomposition as an
// external model.

#ifndef CLEAVE_LIB_INTERFACES_LOWERING_MODEL_H
#define CLEAVE_LIB_INTERFACES_LOWERING_MODEL_H

#include "cleave/Interfaces/TensorExpr.h"

namespace cleave::lowering {

/// What a model says of precision where its kind of kernel does not say it.
using Precision = PrecisionRule (*)();

/// Reads these operands in bf16 and accumulates in f32.
template <unsigned... Operands> PrecisionRule multiplies() {
  return {PrecisionRule::Kind::Multiplies, {Operands...}, {}, {}};
}
/// Places the elements of these operands.
template <unsigned... Operands> PrecisionRule moves() {
  return {PrecisionRule::Kind::Moves, {Operands...}, {}, {}};
}
/// Gives these results in f32.
template <unsigned... Results> PrecisionRule keeps() {
  return {PrecisionRule::Kind::Computes, {}, {Results...}, {}};
}
/// Chooses by this operand.
template <unsigned Operand> PrecisionRule choosesBy() {
  return {PrecisionRule::Kind::Computes, {}, {}, {Operand}};
}

/// That of the operation itself, else that of its class.
template <KernelClass kernelClass, Precision precision> PrecisionRule ruleOf() {
  if constexpr (precision != nullptr)
    return precision();
  else
    return PrecisionRule::of(kernelClass);
}

/// LoweringInterface for an operation that generated kernels speak already, or
/// that no generated kernel contains.
template <typename Op, KernelClass kernelClass, Precision precision = nullptr>
struct PlainModel
    : LoweringInterface::ExternalModel<PlainModel<Op, kernelClass, precision>,
                                       Op> {
  KernelClass getKernelClass(mlir::Operation *) const { return kernelClass; }
  PrecisionRule getPrecision(mlir::Operation *) const {
    return ruleOf<kernelClass, precision>();
  }
};

template <KernelClass kernelClass, typename... Ops>
void attachPlain(mlir::MLIRContext *context) {
  (Ops::template attachInterface<PlainModel<Ops, kernelClass>>(*context), ...);
}
template <KernelClass kernelClass, Precision precision, typename... Ops>
void attachPlain(mlir::MLIRContext *context) {
  (Ops::template attachInterface<PlainModel<Ops, kernelClass, precision>>(
       *context),
   ...);
}

/// LoweringInterface with a decomposition.
template <typename Op, KernelClass kernelClass,
          Decomposed (*Rule)(Op, TensorExpr &), Precision precision = nullptr>
struct Model
    : LoweringInterface::ExternalModel<Model<Op, kernelClass, Rule, precision>,
                                       Op> {
  KernelClass getKernelClass(mlir::Operation *) const { return kernelClass; }
  PrecisionRule getPrecision(mlir::Operation *) const {
    return ruleOf<kernelClass, precision>();
  }
  Decomposed decompose(mlir::Operation *op, mlir::OpBuilder &builder) const {
    TensorExpr expr(builder, op->getLoc());
    return Rule(mlir::cast<Op>(op), expr);
  }
};

template <typename Op, KernelClass kernelClass,
          Decomposed (*Rule)(Op, TensorExpr &), Precision precision = nullptr>
void attach(mlir::MLIRContext *context) {
  Op::template attachInterface<Model<Op, kernelClass, Rule, precision>>(
      *context);
}

/// One function per family.
void attachElementwise(mlir::MLIRContext *context);
void attachShape(mlir::MLIRContext *context);
void attachConvolution(mlir::MLIRContext *context);
void attachRows(mlir::MLIRContext *context);
void attachTraining(mlir::MLIRContext *context);

} // namespace cleave::lowering

#endif
