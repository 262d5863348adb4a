// The attention command, and the number of pairs of a query and a key that are
// not masked.
#ifndef CLEAVE_PROGRAM_ATTENTION_H
#define CLEAVE_PROGRAM_ATTENTION_H

#include "cleave/program/values.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace cleave::program {

// An array [batch, position, kv head, group, feature] with its strides. The
// group stride of k, v, dk and dv is ignored, because they have no groups. The
// feature stride of lse is ignored, too.
struct AttentionRef {
  BufferRef buffer;
  std::array<int64_t, 5> strides{};
};

// An i64 or u8 array [batch, position].
struct IndexRef {
  BufferRef buffer;
  std::array<int64_t, 2> strides{};
};

// Attention over [b, qLen, n, g, d] queries and [b, kLen, n, d] keys. Query
// head h is group h % g of kv head h / g (so g = 1 is multi-head attention).
//   s = cap(scale * q k^T) + bias, masked; o = softmax(s) v;
//   lse = log sum exp s; cap(x) = softcap * tanh(x / softcap), or x for 0.
// Key j is visible to query i unless
// - `causal` is set, and kpos(j) > qpos(i). kpos(j) is keyPositions[j] or,
//   without this array, keyOffset + j; qpos(i) is queryPositions[i] or
//   queryOffset + i;
// - window > 0, and |qpos(i) - kpos(j)| >= window;
// - there are segments, and those of query i and key j differ;
// - there is a keyMask, and its entry j (u8) is 0. Such keys and their values
//   are not read and may hold anything.
// Dropout with probability p > 0 acts on the weights of the softmax: a weight
// (i, j) is kept and divided by 1 - p, or set to 0. It is kept if a random word
// is at least leastKept(p). philox.h computes the word from dropoutKeys (i64,
// [b, n, g]; other strides are ignored), queryIndices[i] and keyIndices[j]
// (i64). lse is computed without dropout.
// A row without a visible key gives o = 0, lse = -inf and zero gradients. The
// bias has strides [b, query, n, g, key]; 0 broadcasts. Positions and segments
// are i64, and given for both queries and keys or for neither. Forward reads q,
// k, v and writes o, lse; backward reads q, k, v, o, dO, lse and writes dq, dk,
// dv. Everything is computed in the type of the attention or, if that is bf16,
// in f32; this is also the type of lse and the bias.
struct Attention {
  bool backward = false;
  DType dtype = DType::F32;
  int64_t b = 0, qLen = 0, kLen = 0, n = 0, g = 1, d = 0, dv = 0;
  AttentionRef q, k, v, o, lse, dO, dq, dk, dV;
  double scale = 1.0, softcap = 0.0;
  bool causal = false;
  int64_t window = 0;
  int64_t queryOffset = 0, keyOffset = 0;
  AttentionRef bias;
  IndexRef queryPositions, keyPositions, querySegments, keySegments, keyMask;
  double dropout = 0.0;
  AttentionRef dropoutKeys;
  IndexRef queryIndices, keyIndices;
  BufferRef workspace; // attentionWorkspace() bytes (cleave/workspace.h)
  int64_t workspaceSize = 0;
};

// Returns the number of (query, key) pairs that the causal mask and the window
// do not mask, if query i has position i and key j position j.
inline int64_t attentionPairs(int64_t queries, int64_t keys, bool causal,
                              int64_t window) {
  // Counts the pairs with key <= query + shift. Queries before `first` see no
  // key, queries from `full` on see all keys.
  auto upTo = [&](int64_t shift) {
    int64_t first = std::clamp<int64_t>(-shift, 0, queries);
    int64_t full = std::clamp<int64_t>(keys - 1 - shift, first, queries);
    return (full - first) * (first + full + 2 * shift + 1) / 2 +
           (queries - full) * keys;
  };
  int64_t reach = queries + keys;
  if (window > 0)
    reach = std::min(reach, window);
  return upTo(causal ? 0 : reach - 1) - upTo(-reach);
}

// Returns the mean number of (query, key) pairs that are not masked in one step
// of ring attention, which combines a tile of queries with a tile of keys. Over
// all steps, a causal mask leaves half of the pairs.
inline int64_t meanAttentionPairs(int64_t queries, int64_t keys, bool causal,
                                  int64_t window) {
  int64_t pairs = causal ? queries * keys / 2 : queries * keys;
  if (window > 0 && window < keys)
    pairs = std::min(pairs, queries * (causal ? window : 2 * window - 1));
  return pairs;
}

} // namespace cleave::program

#endif // CLEAVE_PROGRAM_ATTENTION_H
