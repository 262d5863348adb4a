// Splits a boolean mask of attention scores into bands, segments and key masks.

#ifndef CLEAVE_LIB_DIALECT_NN_TRANSFORMS_MASKANALYSIS_H
#define CLEAVE_LIB_DIALECT_NN_TRANSFORMS_MASKANALYSIS_H

#include "Dataflow.h"

namespace cleave::nn {

/// The dimensions of the scores that enumerate the samples, the queries and the
/// keys; -1 if the scores have no such dimension.
struct ScoreDims {
  int64_t batch = -1, query = -1, key = -1;
};

/// A boolean value, or its negation. The value varies along the dimensions
/// `dims` of the scores.
struct MaskPart {
  Narrow value;
  bool negated = false;
};

/// Divides queries and keys into segments, by ids. A query sees only the keys
/// of its own segment. The ids of queries are [query] or [batch, query], those
/// of keys [key] or [batch, key]; the two dimensions may be in any order.
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
  /// Parts of the mask that depend on the key alone, or on the key and the
  /// sample, but not on the query.
  llvm::SmallVector<MaskPart> keyMasks;
  llvm::SmallVector<MaskPart> rest;
};

/// Adds to `parts` the parts of `mask`, or of its negation. Dimension i of the
/// mask is dimension dims[i] of the scores.
void splitMask(mlir::Value mask, bool negated, llvm::ArrayRef<int64_t> dims,
               const ScoreDims &scores, MaskParts &parts);

/// A band of the mask (a range of keys for each query), expressed by attributes
/// of nn.attention. These compare positions: key j has position j, and query i
/// has position i + shift.
struct BandRule {
  bool causal = false;
  int64_t window = 0, shift = 0;
};

/// Converts the band in `parts`, for s queries and t keys, to attributes of
/// nn.attention. Bounds that the attributes cannot express are moved to
/// `parts.rest`.
BandRule sayBand(MaskParts &parts, int64_t s, int64_t t);

} // namespace cleave::nn

#endif
