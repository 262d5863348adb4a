// Finds the values to which models usually apply dropout: the branches that are
// added to the residual stream, and the embedding with which the stream begins.

#ifndef CLEAVE_LIB_AUTODIFF_DROPOUTPLACES_H
#define CLEAVE_LIB_AUTODIFF_DROPOUTPLACES_H

#include "cleave/Dialect/NN/Transforms/BatchFlow.h"

namespace cleave::autodiff {

/// A value to which dropout is applied. Only the readers in `uses` read the
/// dropout's result; other readers still read `value`.
struct DropoutPlace {
  mlir::Value value;
  llvm::SmallVector<mlir::OpOperand *> uses;
  bool isEmbedding = false; ///< if false, the value is a branch
};

/// Returns the values of a function to which dropout is applied, in program
/// order. Each value is a branch or an embedding, and depends on samples.
///
/// A branch is what a layer adds to the residual stream x: the operand f(x) of
/// the addition x + f(x), where f is, for example, an attention or an MLP. An
/// operand of an addition is recognized as a branch if:
///
/// - It is computed from the other operand (the residual stream), or from one
///   of the values that were added up to give the other operand.
/// - This computation has a contraction with a weight, that is, with a tensor
///   that does not depend on samples.
/// - This computation does not contain an addition of an earlier branch.
///
/// So terms of a rotation, gates, scores, masks and biases are not branches,
/// and neither are two residual streams that are added. If no later contraction
/// with a weight reads an addition, the addition is ignored, because it
/// computes a prediction or a part of the loss.
///
/// An embedding consists of rows that integers select from a table of weights,
/// or is a sum of such values and weights. It gets dropout if a residual stream
/// begins with it, possibly after it was transposed, reshaped, scaled,
/// normalized or projected.
llvm::SmallVector<DropoutPlace> findDropoutPlaces(mlir::func::FuncOp func,
                                                  const nn::BatchFlow &flow);

} // namespace cleave::autodiff

#endif // CLEAVE_LIB_AUTODIFF_DROPOUTPLACES_H
