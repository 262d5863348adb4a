// What a boolean mask of attention scores says.

#ifndef CLEAVE_LIB_DIALECT_NN_TRANSFORMS_MASKANALYSIS_H
#define CLEAVE_LIB_DIALECT_NN_TRANSFORMS_MASKANALYSIS_H

#include "Dataflow.h"

namespace cleave::nn {

/// Dimensions of the scores: queries s and keys t, and the batch b, or -1.
struct ScoreDims {
  int64_t batch = -1, query = -1, key = -1;
};

/// A boolean value, or what it is not. `dims` of the value are the dimensions
/// of the scores along which it varies.
struct MaskPart {
  Narrow value;
  bool negated = false;
};

/// Queries see keys of their own segment: values along [query] or [batch,
/// query], and along [key] or [batch, key], in some order.
struct SegmentPart {
  Narrow query, key;
};

/// A mask as the conjunction of its parts.
struct MaskParts {
  /// Key j is seen by query i where lowest <= j - i <= highest.
  std::optional<int64_t> lowest, highest;
  /// The comparisons that said so of `lowest`.
  llvm::SmallVector<MaskPart> lowerBounds;
  std::optional<SegmentPart> segments;
  /// Parts that depend on the key, and perhaps on the sample, only.
  llvm::SmallVector<MaskPart> keyMasks;
  llvm::SmallVector<MaskPart> rest;
};

/// Splits `mask`, or what it is not, whose dimension i is dimension dims[i] of
/// the scores.
void splitMask(mlir::Value mask, bool negated, llvm::ArrayRef<int64_t> dims,
               const ScoreDims &scores, MaskParts &parts);

/// How attention says a band: key j at position j, query i at position i +
/// shift.
struct BandRule {
  bool causal = false;
  int64_t window = 0, shift = 0;
};

/// The rule of the band of `parts` over s queries and t keys. What it cannot
/// say goes to the rest.
BandRule sayBand(MaskParts &parts, int64_t s, int64_t t);

} // namespace cleave::nn

#endif
