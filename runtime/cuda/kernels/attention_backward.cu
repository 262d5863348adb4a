// The backward pass of attention. Scores are recomputed twice: by tiles of
// queries for the gradient of queries, and by tiles of keys for the gradients
// of keys and values. Each gradient is summed by one block in a fixed order.

#include "attention_gradient.h"

using namespace cleave::cuda;
using namespace cleave::cuda::device;

namespace {
/// delta = sum(dO * o) for every query; each warp computes one query.
template <class T> CLEAVE_DEVICE void sumDelta(const AttentionArguments &x) {
  int64_t row = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  if (row >= x.b * x.n * x.g * x.qLen)
    return; // together with its whole warp
  int64_t i = row % x.qLen, head = row / x.qLen;
  int64_t g = head % x.g, n = head / x.g % x.n, b = head / x.g / x.n;
  HeadRows o(x.o, b, n, g, i, x.qLen, x.dv, nullptr);
  HeadRows dO(x.dO, b, n, g, i, x.qLen, x.dv, nullptr);
  T sum = 0;
  for (int64_t f = threadIdx.x % 32; f < x.dv; f += 32)
    sum += loadAs<T>(o.data, o.first + f * o.featureStride, x.isBf16) *
           loadAs<T>(dO.data, dO.first + f * dO.featureStride, x.isBf16);
#pragma unroll
  for (int with = 16; with > 0; with /= 2)
    sum += __shfl_xor_sync(allLanes, sum, with);
  if (threadIdx.x % 32 == 0)
    static_cast<T *>(x.delta)[row] = sum;
}

template <class T, int side, int wide, bool drops>
CLEAVE_DEVICE void backwardQueries(const AttentionArguments &x) {
  using Tiles = AttentionTiles<T, side>;
  constexpr int tile = Tiles::tile;
  Tiles tiles(x.isBf16);
  auto &shared = tiles.shared;
  KeptWeights<drops, typename Tiles::Shared, tile> kept;
  int64_t heads = x.b * x.n * x.g, head = blockIdx.x % heads;
  int64_t q0 = (gridDim.x / heads - 1 - blockIdx.x / heads) * tile;
  int64_t g = head % x.g, n = head / x.g % x.n, b = head / x.g / x.n;
  for (int i = int(threadIdx.x); i < tile; i += attentionThreads)
    loadQueries<T>(x, shared, i, b, n, g, q0 + i);
  __syncthreads();
  QueryBounds bounds(shared.queries, int(minOf(x.qLen - q0, tile)), tile);

  typename Tiles::template Sums<wide> sums;
  tiles.clear(sums);
  HeadRows q(x.q, b, n, g, q0, x.qLen, x.d, nullptr);
  HeadRows dO(x.dO, b, n, g, q0, x.qLen, x.dv, nullptr);
  TileRange range = bounds.tiles(x, tile);
  for (int64_t k0 = range.begin * tile; k0 < range.end * tile; k0 += tile) {
    __syncthreads();
    bool some = false, all = true;
    for (int j = int(threadIdx.x); j < tile; j += attentionThreads) {
      AttentionKey key = keyAt(x, b, k0 + j);
      shared.keys[j] = key;
      some = bounds.someSee(key), all = bounds.allSee(key);
    }
    if (!__syncthreads_or(some))
      continue;
    all = __syncthreads_and(all);
    HeadRows k(x.k, b, n, 0, k0, x.kLen, x.d, shared.keys);
    HeadRows v(x.v, b, n, 0, k0, x.kLen, x.dv, shared.keys);
    kept.draw(x, b, n, g, q0, k0);
    T scores[side][side], dP[side][side];
    tiles.multiplyRows(q, k, scores);
    tiles.multiplyRows(dO, v, dP);
#pragma unroll
    for (int i = 0; i < side; ++i)
#pragma unroll
      for (int j = 0; j < side; ++j) {
        int row = tiles.y * side + i, column = tiles.x + 16 * j;
        bool isSeen = all || sees(shared.queries[row], shared.keys[column]);
        T weight;
        gradientOf<drops>(x, isSeen, kept.has(row, column),
                          biasAt(x, b, n, g, q0 + row, k0 + column),
                          shared.lse[row], shared.delta[row], scores[i][j],
                          dP[i][j], weight, dP[i][j]);
      }
    tiles.putWeights(dP);
    tiles.template addWeighted<wide>(k, sums);
  }
  T factors[side];
#pragma unroll
  for (int i = 0; i < side; ++i)
    factors[i] = 1;
  tiles.template write<wide>(HeadRows(x.dq, b, n, g, q0, x.qLen, x.d, nullptr),
                             sums, factors);
}

template <class T, int side, int wide, bool drops>
CLEAVE_DEVICE void backwardKeys(const AttentionArguments &x) {
  using Tiles = AttentionTiles<T, side>;
  constexpr int tile = Tiles::tile;
  Tiles tiles(x.isBf16);
  auto &shared = tiles.shared;
  KeptWeights<drops, typename Tiles::Shared, tile> kept;
  int64_t heads = x.b * x.n, head = blockIdx.x % heads;
  int64_t k0 = blockIdx.x / heads * tile, n = head % x.n, b = head / x.n;
  for (int j = int(threadIdx.x); j < tile; j += attentionThreads)
    shared.keys[j] = keyAt(x, b, k0 + j);
  __syncthreads();
  KeyBounds bounds(shared.keys, tile);

  typename Tiles::template Sums<wide> dk, dV;
  tiles.clear(dk);
  tiles.clear(dV);
  HeadRows k(x.k, b, n, 0, k0, x.kLen, x.d, shared.keys);
  HeadRows v(x.v, b, n, 0, k0, x.kLen, x.dv, shared.keys);
  TileRange range = bounds.tiles(x, tile);
  for (int64_t g = 0; g < x.g; ++g)
    for (int64_t q0 = range.begin * tile; q0 < range.end * tile; q0 += tile) {
      __syncthreads();
      bool some = false, all = true;
      for (int i = int(threadIdx.x); i < tile; i += attentionThreads) {
        loadQueries<T>(x, shared, i, b, n, g, q0 + i);
        some = bounds.someSeenBy(shared.queries[i]);
        all = bounds.allSeenBy(shared.queries[i]);
      }
      if (!__syncthreads_or(some))
        continue;
      all = __syncthreads_and(all);
      HeadRows q(x.q, b, n, g, q0, x.qLen, x.d, nullptr);
      HeadRows dO(x.dO, b, n, g, q0, x.qLen, x.dv, nullptr);
      kept.draw(x, b, n, g, q0, k0);
      T scores[side][side], dP[side][side];
      tiles.multiplyRows(k, q, scores);
      tiles.multiplyRows(v, dO, dP);
#pragma unroll
      for (int i = 0; i < side; ++i)
#pragma unroll
        for (int j = 0; j < side; ++j) {
          int row = tiles.y * side + i, column = tiles.x + 16 * j;
          bool isSeen = all || sees(shared.queries[column], shared.keys[row]);
          gradientOf<drops>(x, isSeen, kept.has(column, row),
                            biasAt(x, b, n, g, q0 + column, k0 + row),
                            shared.lse[column], shared.delta[column],
                            scores[i][j], dP[i][j], scores[i][j], dP[i][j]);
        }
      tiles.putWeights(scores);
      tiles.template addWeighted<wide>(dO, dV);
      tiles.putWeights(dP);
      tiles.template addWeighted<wide>(q, dk);
    }
  T factors[side];
#pragma unroll
  for (int i = 0; i < side; ++i)
    factors[i] = 1;
  tiles.template write<wide>(HeadRows(x.dk, b, n, 0, k0, x.kLen, x.d, nullptr),
                             dk, factors);
  tiles.template write<wide>(HeadRows(x.dV, b, n, 0, k0, x.kLen, x.dv, nullptr),
                             dV, factors);
}
} // namespace

#define CLEAVE_DELTA(name, type)                                               \
  extern "C" __global__ void __launch_bounds__(attentionThreads)               \
      cleave_attention_delta_##name(AttentionArguments x) {                    \
    sumDelta<type>(x);                                                         \
  }
CLEAVE_DELTA(f32, float)
CLEAVE_DELTA(f64, double)

#define CLEAVE_BACKWARD(name, type, side, wide, drops)                         \
  extern "C" __global__ void __launch_bounds__(attentionThreads)               \
      cleave_attention_dq_##name(AttentionArguments x) {                       \
    backwardQueries<type, side, wide, drops>(x);                               \
  }                                                                            \
  extern "C" __global__ void __launch_bounds__(attentionThreads)               \
      cleave_attention_dkv_##name(AttentionArguments x) {                      \
    backwardKeys<type, side, wide, drops>(x);                                  \
  }
CLEAVE_BACKWARD(f32_64, float, 4, 1, false)
CLEAVE_BACKWARD(f32_128, float, 4, 2, false)
CLEAVE_BACKWARD(f32_256, float, 4, 4, false)
CLEAVE_BACKWARD(f64_256, double, 2, 4, false)
CLEAVE_BACKWARD(dropped_f32_64, float, 4, 1, true)
CLEAVE_BACKWARD(dropped_f32_128, float, 4, 2, true)
CLEAVE_BACKWARD(dropped_f32_256, float, 4, 4, true)
CLEAVE_BACKWARD(dropped_f64_256, double, 2, 4, true)

CLEAVE_KERNELS(
    attention_backward, CLEAVE_KERNEL(attention_delta_f32),
    CLEAVE_KERNEL(attention_delta_f64), CLEAVE_KERNEL(attention_dq_f32_64),
    CLEAVE_KERNEL(attention_dq_f32_128), CLEAVE_KERNEL(attention_dq_f32_256),
    CLEAVE_KERNEL(attention_dq_f64_256), CLEAVE_KERNEL(attention_dkv_f32_64),
    CLEAVE_KERNEL(attention_dkv_f32_128), CLEAVE_KERNEL(attention_dkv_f32_256),
    CLEAVE_KERNEL(attention_dkv_f64_256),
    CLEAVE_KERNEL(attention_dq_dropped_f32_64),
    CLEAVE_KERNEL(attention_dq_dropped_f32_128),
    CLEAVE_KERNEL(attention_dq_dropped_f32_256),
    CLEAVE_KERNEL(attention_dq_dropped_f64_256),
    CLEAVE_KERNEL(attention_dkv_dropped_f32_64),
    CLEAVE_KERNEL(attention_dkv_dropped_f32_128),
    CLEAVE_KERNEL(attention_dkv_dropped_f32_256),
    CLEAVE_KERNEL(attention_dkv_dropped_f64_256))
