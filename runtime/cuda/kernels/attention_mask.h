// Attention masks: which keys queries see, decided for whole tiles if possible.
#ifndef CLEAVE_RUNTIME_CUDA_KERNELS_ATTENTION_MASK_H
#define CLEAVE_RUNTIME_CUDA_KERNELS_ATTENTION_MASK_H

#include "attention_arguments.h"
#include "device_code.h"

namespace cleave::cuda::device {

constexpr int64_t lowest = INT64_MIN, highest = INT64_MAX;

/// Saturating addition, as positions may be any 64-bit numbers.
CLEAVE_DEVICE int64_t plus(int64_t a, int64_t b) {
  auto sum = int64_t(uint64_t(a) + uint64_t(b));
  if (((a ^ sum) & (b ^ sum)) >= 0)
    return sum;
  return b > 0 ? highest : lowest;
}

CLEAVE_DEVICE int64_t entryOf(const AttentionIndexArray &x, int64_t b,
                              int64_t i) {
  return static_cast<const int64_t *>(
      x.data)[b * x.strides[0] + i * x.strides[1]];
}

CLEAVE_DEVICE AttentionQuery queryAt(const AttentionArguments &x, int64_t b,
                                     int64_t i) {
  if (i >= x.qLen)
    return {highest, lowest, 0}; // sees nothing
  int64_t position = x.queryPositions.data ? entryOf(x.queryPositions, b, i)
                                           : x.queryPositions.offset + i;
  AttentionQuery out{lowest, highest, 0};
  if (x.window) {
    out.low = plus(position, 1 - x.window);
    out.high = plus(position, x.window - 1);
  }
  if (x.causal)
    out.high = position;
  if (x.querySegments.data)
    out.segment = entryOf(x.querySegments, b, i);
  return out;
}

CLEAVE_DEVICE AttentionKey keyAt(const AttentionArguments &x, int64_t b,
                                 int64_t j) {
  AttentionKey out{0, 0, j < x.kLen};
  if (!out.isSeen)
    return out;
  if (x.keyMask.data)
    out.isSeen = static_cast<const uint8_t *>(
        x.keyMask.data)[b * x.keyMask.strides[0] + j * x.keyMask.strides[1]];
  out.position = x.keyPositions.data ? entryOf(x.keyPositions, b, j)
                                     : x.keyPositions.offset + j;
  if (x.keySegments.data)
    out.segment = entryOf(x.keySegments, b, j);
  return out;
}

CLEAVE_DEVICE bool sees(const AttentionQuery &query, const AttentionKey &key) {
  return key.isSeen && key.position >= query.low &&
         key.position <= query.high && key.segment == query.segment;
}

/// The tiles [begin, end) of a sequence that is cut into tiles of equal size.
struct TileRange {
  int64_t begin, end;
};
CLEAVE_DEVICE TileRange tilesOf(int64_t begin, int64_t end, int64_t length,
                                int tile) {
  begin = minOf(maxOf(begin, 0), length);
  end = minOf(maxOf(end, begin), length);
  return {begin / tile, (end + tile - 1) / tile};
}

/// The ranges of positions and segments that the queries of a tile see.
struct QueryBounds {
  int64_t low = highest, high = lowest;       // seen by some query
  int64_t lowAll = lowest, highAll = highest; // seen by all queries
  int64_t lowSegment = highest, highSegment = lowest;
  bool isWhole = true;

  CLEAVE_DEVICE QueryBounds(const AttentionQuery *queries, int count,
                            int tile) {
    isWhole = count == tile;
    for (int i = 0; i < count; ++i) {
      const AttentionQuery &query = queries[i];
      low = minOf(low, query.low), high = maxOf(high, query.high);
      lowAll = maxOf(lowAll, query.low), highAll = minOf(highAll, query.high);
      lowSegment = minOf(lowSegment, query.segment);
      highSegment = maxOf(highSegment, query.segment);
    }
  }
  CLEAVE_DEVICE bool someSee(const AttentionKey &key) const {
    return key.isSeen && key.position >= low && key.position <= high &&
           key.segment >= lowSegment && key.segment <= highSegment;
  }
  CLEAVE_DEVICE bool allSee(const AttentionKey &key) const {
    return isWhole && key.isSeen && key.position >= lowAll &&
           key.position <= highAll && key.segment == lowSegment &&
           key.segment == highSegment;
  }
  /// The range of key tiles that this query tile may see.
  CLEAVE_DEVICE TileRange tiles(const AttentionArguments &x, int tile) const {
    if (x.keyPositions.data)
      return tilesOf(0, x.kLen, x.kLen, tile);
    int64_t first = -x.keyPositions.offset;
    return tilesOf(plus(low, first), plus(plus(high, 1), first), x.kLen, tile);
  }
};

/// The ranges of the positions and segments of a tile of keys, without the keys
/// that the key mask hides.
struct KeyBounds {
  int64_t low = highest, high = lowest;
  int64_t lowSegment = highest, highSegment = lowest;
  bool isWhole = true, isEmpty = true;

  CLEAVE_DEVICE KeyBounds(const AttentionKey *keys, int tile) {
    for (int i = 0; i < tile; ++i) {
      const AttentionKey &key = keys[i];
      if (!key.isSeen) {
        isWhole = false;
        continue;
      }
      isEmpty = false;
      low = minOf(low, key.position), high = maxOf(high, key.position);
      lowSegment = minOf(lowSegment, key.segment);
      highSegment = maxOf(highSegment, key.segment);
    }
  }
  CLEAVE_DEVICE bool someSeenBy(const AttentionQuery &query) const {
    return !isEmpty && query.low <= high && query.high >= low &&
           query.segment >= lowSegment && query.segment <= highSegment;
  }
  CLEAVE_DEVICE bool allSeenBy(const AttentionQuery &query) const {
    return isWhole && query.low <= low && query.high >= high &&
           query.segment == lowSegment && query.segment == highSegment;
  }
  /// The range of query tiles that may see these keys.
  CLEAVE_DEVICE TileRange tiles(const AttentionArguments &x, int tile) const {
    if (isEmpty)
      return {0, 0};
    int64_t begin = 0, end = x.qLen;
    if (!x.queryPositions.data) {
      int64_t first = -x.queryPositions.offset;
      if (x.window) {
        begin = plus(plus(low, 1 - x.window), first);
        end = plus(plus(high, x.window), first);
      }
      if (x.causal)
        begin = plus(low, first);
    }
    return tilesOf(begin, end, x.qLen, tile);
  }
};

} // namespace cleave::cuda::device

#endif // CLEAVE_RUNTIME_CUDA_KERNELS_ATTENTION_MASK_H
