// Helpers of the lowering files: attaching a kernel class and a decomposition
// as an external model.

#ifndef CLEAVE_LIB_INTERFACES_LOWERING_MODEL_H
#define CLEAVE_LIB_INTERFACES_LOWERING_MODEL_H

#include "cleave/Interfaces/TensorExpr.h"

namespace cleave::lowering {

/// A function that returns the precision rule of an operation, for operations
/// whose rule differs from that of their kernel class.
using Precision = PrecisionRule (*)();

/// The precision rule of an operation that multiplies these operands: it may
/// read them in bf16 and accumulates in f32.
template <unsigned... Operands> PrecisionRule multiplies() {
  return {PrecisionRule::Kind::Multiplies, {Operands...}, {}, {}};
}
/// The precision rule of an operation that only moves elements of these
/// operands.
template <unsigned... Operands> PrecisionRule moves() {
  return {PrecisionRule::Kind::Moves, {Operands...}, {}, {}};
}
/// The precision rule of an operation that computes these results in f32.
template <unsigned... Results> PrecisionRule keeps() {
  return {PrecisionRule::Kind::Computes, {}, {Results...}, {}};
}
/// The precision rule of an operation that selects elements depending on the
/// values of this operand. The operand must therefore not be rounded.
template <unsigned Operand> PrecisionRule choosesBy() {
  return {PrecisionRule::Kind::Computes, {}, {}, {Operand}};
}

/// Returns the precision rule that is given for the operation, or that of the
/// kernel class if none is given.
template <KernelClass kernelClass, Precision precision> PrecisionRule ruleOf() {
  if constexpr (precision != nullptr)
    return precision();
  else
    return PrecisionRule::of(kernelClass);
}

/// Implements LoweringInterface for an operation that kernels support directly,
/// or that is never part of a kernel.
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

/// Implements LoweringInterface with a decomposition.
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
