// The forward pass of attention. A thread block computes a tile of queries of
// one head. It visits the tiles of keys that some of these queries see, with an
// online softmax.

#include "attention_dropout.h"
#include "attention_tiles.h"

using namespace cleave::cuda;
using namespace cleave::cuda::device;

namespace {
template <class T, int side, int wide, bool drops>
CLEAVE_DEVICE void forward(const AttentionArguments &x) {
  using Tiles = AttentionTiles<T, side>;
  constexpr int tile = Tiles::tile;
  Tiles tiles(x.isBf16);
  auto &shared = tiles.shared;
  KeptWeights<drops, typename Tiles::Shared, tile> kept;
  // Late queries see most keys under a causal mask, so they start first.
  int64_t heads = x.b * x.n * x.g, head = blockIdx.x % heads;
  int64_t q0 = (gridDim.x / heads - 1 - blockIdx.x / heads) * tile;
  int64_t g = head % x.g, n = head / x.g % x.n, b = head / x.g / x.n;
  for (int i = int(threadIdx.x); i < tile; i += attentionThreads)
    shared.queries[i] = queryAt(x, b, q0 + i);
  __syncthreads();
  int count = int(minOf(x.qLen - q0, tile));
  QueryBounds bounds(shared.queries, count, tile);

  typename Tiles::template Sums<wide> sums;
  tiles.clear(sums);
  T high[side], total[side];
#pragma unroll
  for (int i = 0; i < side; ++i) {
    high[i] = minusInfinity<T>();
    total[i] = 0;
  }
  HeadRows q(x.q, b, n, g, q0, x.qLen, x.d, nullptr);
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
    kept.draw(x, b, n, g, q0, k0);
    T scores[side][side];
    tiles.multiplyRows(q, HeadRows(x.k, b, n, 0, k0, x.kLen, x.d, shared.keys),
                       scores);
    T shrink[side];
#pragma unroll
    for (int i = 0; i < side; ++i) {
      int row = tiles.y * side + i;
      T best = high[i];
#pragma unroll
      for (int j = 0; j < side; ++j) {
        int column = tiles.x + 16 * j;
        T slope;
        if (all || sees(shared.queries[row], shared.keys[column]))
          scores[i][j] =
              scoreOf(x, scores[i][j],
                      biasAt(x, b, n, g, q0 + row, k0 + column), slope);
        else
          scores[i][j] = minusInfinity<T>();
        best = scores[i][j] > best ? scores[i][j] : best;
      }
#pragma unroll
      for (int with = 8; with > 0; with /= 2) {
        T other = __shfl_xor_sync(allLanes, best, with);
        best = other > best ? other : best;
      }
      // If a row has seen no key yet, its maximum is -inf. Then 0 is subtracted
      // instead of the maximum, because exp(-inf - -inf) would be NaN.
      T shift = best == minusInfinity<T>() ? T(0) : best;
      shrink[i] = expOf(high[i] - shift);
      high[i] = best;
      total[i] *= shrink[i];
#pragma unroll
      for (int j = 0; j < side; ++j) {
        scores[i][j] = expOf(scores[i][j] - shift);
        total[i] += scores[i][j]; // also of weights that are dropped
        if (!kept.has(row, tiles.x + 16 * j))
          scores[i][j] = 0;
      }
#pragma unroll
      for (int part = 0; part < wide; ++part)
#pragma unroll
        for (int c = 0; c < 4; ++c)
          sums[i][part][c] *= shrink[i];
    }
    tiles.putWeights(scores);
    tiles.template addWeighted<wide>(
        HeadRows(x.v, b, n, 0, k0, x.kLen, x.dv, shared.keys), sums);
  }

  T factors[side];
#pragma unroll
  for (int i = 0; i < side; ++i) {
#pragma unroll
    for (int with = 8; with > 0; with /= 2)
      total[i] += __shfl_xor_sync(allLanes, total[i], with);
    // A NaN score makes the sum NaN, which must appear in the output.
    bool isEmpty = total[i] == 0;
    factors[i] = isEmpty ? T(0) : 1 / total[i];
    if constexpr (drops)
      factors[i] *= T(x.keptScale);
    int64_t row = q0 + tiles.y * side + i;
    if (tiles.x == 0 && row < x.qLen) {
      const int64_t *strides = x.lse.strides;
      static_cast<T *>(x.lse.data)[b * strides[0] + row * strides[1] +
                                   n * strides[2] + g * strides[3]] =
          isEmpty ? minusInfinity<T>() : high[i] + logOf(total[i]);
    }
  }
  tiles.template write<wide>(HeadRows(x.o, b, n, g, q0, x.qLen, x.dv, nullptr),
                             sums, factors);
}
} // namespace

#define CLEAVE_ATTENTION(name, type, side, wide)                               \
  extern "C" __global__ void __launch_bounds__(attentionThreads)               \
      cleave_attention_##name(AttentionArguments x) {                          \
    forward<type, side, wide, false>(x);                                       \
  }                                                                            \
  extern "C" __global__ void __launch_bounds__(attentionThreads)               \
      cleave_attention_dropped_##name(AttentionArguments x) {                  \
    forward<type, side, wide, true>(x);                                        \
  }
CLEAVE_ATTENTION(f32_64, float, 4, 1)
CLEAVE_ATTENTION(f32_128, float, 4, 2)
CLEAVE_ATTENTION(f32_256, float, 4, 4)
CLEAVE_ATTENTION(f64_256, double, 2, 4)

CLEAVE_KERNELS(attention, CLEAVE_KERNEL(attention_f32_64),
               CLEAVE_KERNEL(attention_f32_128),
               CLEAVE_KERNEL(attention_f32_256),
               CLEAVE_KERNEL(attention_f64_256),
               CLEAVE_KERNEL(attention_dropped_f32_64),
               CLEAVE_KERNEL(attention_dropped_f32_128),
               CLEAVE_KERNEL(attention_dropped_f32_256),
               CLEAVE_KERNEL(attention_dropped_f64_256))
