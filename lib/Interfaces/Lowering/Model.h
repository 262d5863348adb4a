// What the lowering files share: attaching a class and a decomposition as an
// external model.

#ifndef CLEAVE_LIB_INTERFACES_LOWERING_MODEL_H
#define CLEAVE_LIB_INTERFACES_LOWERING_MODEL_H

#include "cleave/Interfaces/TensorExpr.h"

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
void attachConvolution(mlir::MLIRContext *context);
void attachRows(mlir::MLIRContext *context);
void attachTraining(mlir::MLIRContext *context);

} // namespace cleave::lowering

#endif
