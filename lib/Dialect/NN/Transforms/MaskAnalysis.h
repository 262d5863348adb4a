// What a boolean mask of attention scores says.

#ifndef CLEAVE_LIB_DIALECT_NN_TRANSFORMS_MASKANALYSIS_H
#define CLEAVE_LIB_DIALECT_NN_TRANSFORMS_MASKANALYSIS_H

#include "Dataflow.h"

namespace cleave::nn {

/// Dimensions of the scores: queries s and keys t, and the batch b, or -1.
struct ScoreDims {
  int64_t batch = -1, query = -1, key = -1;
};

/// A boolean value, or what it is not. `dims` of the value are the dimensions of
/// the scores along which it varies.
struct MaskPart {
  Narrow value;
  bool negated = false;
};

/// A mask as the conjunction of its parts.
struct MaskParts {
  /// Key j is seen by query i where j <= i + offset.
  std::optional<int64_t> causalOffset;
  /// Parts that depend on the key, and perhaps on the sample, only.
  llvm::SmallVector<MaskPart> keyMasks;
  llvm::SmallVector<MaskPart> rest;
};

/// Splits `mask`, or what it is not, whose dimension i is dimension dims[i] of
/// the scores.
void splitMask(mlir::Value mask, bool negated, llvm::ArrayRef<int64_t> dims,
               const ScoreDims &scores, MaskParts &parts);

} // namespace cleave::nn

#endif
