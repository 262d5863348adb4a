// Recognizes how attention scores are computed: from the product of queries and
// keys, a scale, a cap, biases and masks.

#ifndef CLEAVE_LIB_DIALECT_NN_TRANSFORMS_ATTENTIONSCORES_H
#define CLEAVE_LIB_DIALECT_NN_TRANSFORMS_ATTENTIONSCORES_H

#include "Dataflow.h"

namespace cleave::nn {

/// A boolean for each score: whether the query may read the key or, if
/// `negated` is true, whether it may not.
struct Mask {
  Narrow condition;
  bool negated = false;
};

struct Bias {
  Narrow value;
  double factor = 1;
};

/// Attention scores of the form cap(product * scale) + biases. Where a mask is
/// false, the query may not read the key. cap(x) is softcap * tanh(x), or x if
/// softcap is 0.
struct Scores {
  EinsumOp product;
  double scale = 1, softcap = 0;
  llvm::SmallVector<Bias> biases;
  llvm::SmallVector<Mask> masks;
};

/// Returns the product, scale, softcap, biases and masks from which `scores` is
/// computed. Returns nullopt if `scores` is not of this form.
std::optional<Scores> analyzeScores(mlir::Value scores);

} // namespace cleave::nn

#endif
