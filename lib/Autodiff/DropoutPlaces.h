// Where models usually have dropout: on the branches that are added to the
// residual stream, and on the embedding that the stream begins with.

#ifndef CLEAVE_LIB_AUTODIFF_DROPOUTPLACES_H
#define CLEAVE_LIB_AUTODIFF_DROPOUTPLACES_H

#include "cleave/Dialect/NN/Transforms/BatchFlow.h"

namespace cleave::autodiff {

/// A value to which dropout is applied. Only the readers `uses` get the result;
/// other readers of the value get it without dropout.
struct DropoutPlace {
  mlir::Value value;
  llvm::SmallVector<mlir::OpOperand *> uses;
  bool isEmbedding = false; ///< else a branch
};

/// Returns the values of a function to which dropout is applied, in program
/// order: branches and embeddings. All of them depend on samples.
///
/// A branch is an operand of an addition that is computed from the other
/// operand (the residual stream), or from a term of that operand. This
/// computation has a contraction with a weight, that is, with a tensor that
/// does not depend on samples, but no addition of another branch. So terms of a
/// rotation, gates, scores, masks and biases are no branches, and neither are
/// residual streams that are added. An addition is ignored if no later
/// contraction with a weight reads it: it is then a prediction or a part of the
/// loss.
///
/// An embedding is a value of table rows that integers choose, or a sum of such
/// values and weights. It gets dropout if a residual stream begins with it,
/// possibly after it was moved, scaled, normalized or projected.
llvm::SmallVector<DropoutPlace> findDropoutPlaces(mlir::func::FuncOp func,
                                                  const nn::BatchFlow &flow);

} // namespace cleave::autodiff

#endif // CLEAVE_LIB_AUTODIFF_DROPOUTPLACES_H
