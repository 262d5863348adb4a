// Where dropout usually stands in a model: on what joins the residual stream,
// and on the embedding that the stream begins with.

#ifndef CLEAVE_LIB_AUTODIFF_DROPOUTPLACES_H
#define CLEAVE_LIB_AUTODIFF_DROPOUTPLACES_H

#include "cleave/Dialect/NN/Transforms/BatchFlow.h"

namespace cleave::autodiff {

/// A value to drop elements of, for the operands that read it here. Other users
/// see it whole.
struct DropoutPlace {
  mlir::Value value;
  llvm::SmallVector<mlir::OpOperand *> uses;
  bool isEmbedding = false; ///< else a branch
};

/// The places of a function, in program order; all are computed from samples.
///
/// A branch is an addend that is computed from the other side of its sum, or
/// from an addend of that, through a contraction with something that samples
/// have no part in (a weight, frozen or not), and not through the sum of
/// another branch. So neither the terms of a rotation nor gates, scores, masks
/// and biases are branches, whatever their shapes are, nor are streams that are
/// summed. Sums that no such contraction reads are predictions, and what losses
/// make of them.
///
/// An embedding is made of rows that integers choose, and of sums of such and
/// of weights. It is a place where a stream begins with it, moved, scaled,
/// normalized or projected.
llvm::SmallVector<DropoutPlace> findDropoutPlaces(mlir::func::FuncOp func,
                                                  const nn::BatchFlow &flow);

} // namespace cleave::autodiff

#endif // CLEAVE_LIB_AUTODIFF_DROPOUTPLACES_H
