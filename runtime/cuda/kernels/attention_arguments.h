// Arguments and shared memory of the attention kernels, shared by host and
// device. Strides are in elements.
#ifndef CLEAVE_RUNTIME_CUDA_KERNELS_ATTENTION_ARGUMENTS_H
#define CLEAVE_RUNTIME_CUDA_KERNELS_ATTENTION_ARGUMENTS_H

#include <stdint.h>

namespace cleave::cuda {

struct AttentionArray {
  void *data;
  int64_t strides[5]; // [batch, position, kv head, group, feature]
};
struct AttentionIndexArray {
  const void *data; // i64, or u8; may be null
  int64_t strides[2];
  int64_t offset; // if `data` is null, entry i is offset + i
};

struct AttentionArguments {
  int64_t b, qLen, kLen, n, g, d, dv;
  AttentionArray q, k, v, o, lse, dO, dq, dk, dV, bias;
  AttentionIndexArray queryPositions, keyPositions, querySegments, keySegments,
      keyMask;
  void *delta; // backward: [b, n, g, qLen], sum(dO * o)
  double scale, softcap;
  int64_t window;
  int32_t causal, isBf16, backward;
  // Dropout. `dropoutKeys` is null if nothing is dropped.
  const int64_t *dropoutKeys;
  int64_t dropoutStrides[3]; // [batch, kv head, group]
  AttentionIndexArray queryIndices, keyIndices;
  uint64_t leastKept;
  double keptScale;
};

constexpr int attentionThreads = 256;
// The number of head features that a block keeps in shared memory at a time:
// four for each of 16 threads.
constexpr int attentionFeatures = 64;

// The keys that a query sees: those in the query's segment at positions low to
// high.
struct AttentionQuery {
  int64_t low, high, segment;
};
struct AttentionKey {
  int64_t position, segment;
  int32_t isSeen;
};

// The attention weights of a tile that dropout keeps, as one bit per weight. A
// byte has the bits of four adjacent keys.
template <int tile> struct alignas(16) AttentionKept {
  uint8_t bits[tile][tile / 4];
};

// Shared memory of the kernels that do not use tensor cores. A tile has 16 *
// side queries or keys.
template <class T, int side> struct alignas(16) AttentionShared {
  static constexpr int tile = 16 * side;
  T left[tile][attentionFeatures + 4], right[tile][attentionFeatures + 4];
  T weights[tile][tile + 4];
  AttentionQuery queries[tile];
  AttentionKey keys[tile];
  T lse[tile], delta[tile];
};

// Shared memory of the bf16 kernels that use tensor cores. A block has a tile
// of 64 queries or keys, 16 for each warp. `wide` is the largest number of
// features of a head.
constexpr int attentionMatrixThreads = 128, attentionMatrixTile = 64;
template <int tiles, int wide> struct alignas(16) AttentionMatrixShared {
  // 8 elements more, so that rows begin in different banks.
  uint16_t tile[tiles][attentionMatrixTile][wide + 8];
  AttentionQuery queries[attentionMatrixTile];
  AttentionKey keys[attentionMatrixTile];
  float lse[attentionMatrixTile], delta[attentionMatrixTile];
};

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_KERNELS_ATTENTION_ARGUMENTS_H
