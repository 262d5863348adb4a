// Splits a boolean mask of attention scores into bands, segments and key masks.

#ifndef CLEAVE_LIB_DIALECT_NN_TRANSFORMS_MASKANALYSIS_H
#define CLEAVE_LIB_DIALECT_NN_TRANSFORMS_MASKANALYSIS_H

#include "Dataflow.h"

namespace cleave::nn {

/// The dimensions of the scores for queries s, keys t and the batch b; -1 if
/// there is none.
struct ScoreDims {
  int64_t batch = -1, query = -1, key = -1;
};

/// A boolean value, or its negation. The value varies along the dimensions
/// `dims` of the scores.
struct MaskPart {
  Narrow value;
  bool negated = false;
};

/// Queries see the keys of their own segment. The ids are [query] or [batch,
/// query], and [key] or [batch, key], in some order.
struct SegmentPart {
  Narrow query, key;
};

/// A mask as the conjunction of its parts.
struct MaskParts {
  /// Query i sees key j if lowest <= j - i <= highest.
  std::optional<int64_t> lowest, highest;
  /// The comparisons that gave `lowest`.
  llvm::SmallVector<MaskPart> lowerBounds;
  std::optional<SegmentPart> segments;
  /// Parts that depend on the key alone, or on the key and the sample.
  llvm::SmallVector<MaskPart> keyMasks;
  llvm::SmallVector<MaskPart> rest;
};

/// Splits `mask`, or its negation. Dimension i of the mask is dimension dims[i]
/// of the scores.
void splitMask(mlir::Value mask, bool negated, llvm::ArrayRef<int64_t> dims,
               const ScoreDims &scores, MaskParts &parts);

/// A band in the attributes of nn.attention: key j has position j, query i has
/// position i + shift.
struct BandRule {
  bool causal = false;
  int64_t window = 0, shift = 0;
};

/// Adds the band of `parts`, over s queries and t keys, as attributes. Bounds
/// that the attributes cannot express are added to the other parts.
BandRule sayBand(MaskParts &parts, int64_t s, int64_t t);

} // namespace cleave::nn

#endif
