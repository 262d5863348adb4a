// Helpers of the derivative files: attaching a function as an external model.

#ifndef CLEAVE_LIB_INTERFACES_DERIVATIVE_MODEL_H
#define CLEAVE_LIB_INTERFACES_DERIVATIVE_MODEL_H

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Interfaces/Interfaces.h"

namespace cleave::derivative {

/// Implements DifferentiableInterface for `Op` by a function.
template <typename Op, mlir::LogicalResult (*Rule)(Op, VJPContext &)>
struct Model : DifferentiableInterface::ExternalModel<Model<Op, Rule>, Op> {
  mlir::LogicalResult buildVJP(mlir::Operation *op, VJPContext &context) const {
    return Rule(mlir::cast<Op>(op), context);
  }
};

template <typename Op, mlir::LogicalResult (*Rule)(Op, VJPContext &)>
void attach(mlir::MLIRContext *context) {
  Op::template attachInterface<Model<Op, Rule>>(*context);
}

/// Reports an error if the result with index `result` has a cotangent. It is
/// for operations whose derivative is not defined for this result.
inline mlir::LogicalResult refuseCotangent(mlir::Operation *op,
                                           VJPContext &context, unsigned result,
                                           llvm::StringRef name) {
  if (context.cotangent(result))
    return op->emitOpError("cannot be differentiated through its result '")
           << name << "'";
  return mlir::success();
}

/// One function per family.
void attachElementwise(mlir::MLIRContext *context);
void attachShape(mlir::MLIRContext *context);
void attachControl(mlir::MLIRContext *context);
void attachConvolution(mlir::MLIRContext *context);
void attachContraction(mlir::MLIRContext *context);
void attachRows(mlir::MLIRContext *context);
void attachAttention(mlir::MLIRContext *context);
void attachExperts(mlir::MLIRContext *context);

} // namespace cleave::derivative

#endif
