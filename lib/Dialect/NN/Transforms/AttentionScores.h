// The parts of attention scores: product, scale, cap, biases and masks.

#ifndef CLEAVE_LIB_DIALECT_NN_TRANSFORMS_ATTENTIONSCORES_H
#define CLEAVE_LIB_DIALECT_NN_TRANSFORMS_ATTENTIONSCORES_H

#include "Dataflow.h"

namespace cleave::nn {

/// A boolean over the scores, perhaps negated.
struct Mask {
  Narrow condition;
  bool negated = false;
};

struct Bias {
  Narrow value;
  double factor = 1;
};

/// scores = cap(einsum * scale) + biases, and hidden where a mask is false.
/// cap(x) is softcap * tanh(x), or x where softcap is 0.
struct Scores {
  EinsumOp product;
  double scale = 1, softcap = 0;
  llvm::SmallVector<Bias> biases;
  llvm::SmallVector<Mask> masks;
};

/// Splits `scores` into these parts; nullopt if they are computed in another
/// way.
std::optional<Scores> analyzeScores(mlir::Value scores);

} // namespace cleave::nn

#endif
