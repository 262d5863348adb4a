// Where models usually have dropout: on the branches that are added to the
// residual stream, and on the embedding that the stream begins with.

#ifndef CLEAVE_LIB_AUTODIFF_DROPOUTPLACES_H
#define CLEAVE_LIB_AUTODIFF_DROPOUTPLACES_H

#include "cleave/Dialect/NN/Transforms/BatchFlow.h"

namespace cleave::autodiff {

/// A value to apply dropout to, as read by `uses`. Its other users read the
/// original.
struct DropoutPlace {
  mlir::Value value;
  llvm::SmallVector<mlir::OpOperand *> uses;
  bool isEmbedding = false; ///< else a branch
};

/// The places of a function, in program order. All values depend on samples.
///
/// A branch is an operand of a sum that is computed from the other operand, or
/// from a term of it, through a contraction with a tensor that does not depend
/// on samples (a weight, trained or frozen), but not through the sum of another
/// branch. So the terms of a rotation, gates, scores, masks and biases are no
/// branches, whatever their shapes are, and neither are residual streams that
/// are added. Sums that no later such contraction reads are predictions or
/// parts of the loss.
///
/// An embedding consists of rows that integers choose, and of sums of these and
/// weights. It is a place if a stream begins with it, moved, scaled, normalized
/// or projected.
llvm::SmallVector<DropoutPlace> findDropoutPlaces(mlir::func::FuncOp func,
                                                  const nn::BatchFlow &flow);

} // namespace cleave::autodiff

#endif // CLEAVE_LIB_AUTODIFF_DROPOUTPLACES_H
