// The forward pass of attention in bf16 on tensor cores, for heads with
// contiguous features. It is structured like attention.cu, with scores and
// weights in registers.

#include "attention_dropout.h"
#include "attention_matrices.h"

using namespace cleave::cuda;
using namespace cleave::cuda::device;

namespace {
template <int wide, bool drops>
CLEAVE_DEVICE void forward(const AttentionArguments &x) {
  using Matrices = AttentionMatrices<3, wide>;
  constexpr int tile = Matrices::tile;
  Matrices matrices;
  auto &shared = matrices.shared;
  KeptWeights<drops, typename Matrices::Shared, tile> kept;
  // Late queries see most keys under a causal mask, so they start first.
  int64_t heads = x.b * x.n * x.g, head = blockIdx.x % heads;
  int64_t q0 = (gridDim.x / heads - 1 - blockIdx.x / heads) * tile;
  int64_t g = head % x.g, n = head / x.g % x.n, b = head / x.g / x.n;
  if (threadIdx.x < tile)
    shared.queries[threadIdx.x] = queryAt(x, b, q0 + threadIdx.x);
  __syncthreads();
  QueryBounds bounds(shared.queries, int(minOf(x.qLen - q0, tile)), tile);
  matrices.stage(HeadRows(x.q, b, n, g, q0, x.qLen, x.d, nullptr),
                 shared.tile[0]);

  typename Matrices::Sums sums;
  matrices.clear(sums);
  // The maxima and sums of the warp's rows g and g + 8.
  float high[2], total[2] = {0, 0};
  high[0] = high[1] = minusInfinity<float>();
  TileRange range = bounds.tiles(x, tile);
  for (int64_t k0 = range.begin * tile; k0 < range.end * tile; k0 += tile) {
    __syncthreads();
    bool some = false, all = true;
    if (threadIdx.x < tile) {
      AttentionKey key = keyAt(x, b, k0 + threadIdx.x);
      shared.keys[threadIdx.x] = key;
      some = bounds.someSee(key), all = bounds.allSee(key);
    }
    if (!__syncthreads_or(some))
      continue;
    all = __syncthreads_and(all);
    matrices.stage(HeadRows(x.k, b, n, 0, k0, x.kLen, x.d, shared.keys),
                   shared.tile[1]);
    matrices.stage(HeadRows(x.v, b, n, 0, k0, x.kLen, x.dv, shared.keys),
                   shared.tile[2]);
    kept.draw(x, b, n, g, q0, k0);
    __syncthreads();
    typename Matrices::Scores scores;
    matrices.multiplyRows(shared.tile[0], shared.tile[1], scores);
    float best[2] = {high[0], high[1]};
#pragma unroll
    for (int part = 0; part < tile / 8; ++part)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        int row = matrices.rowOf(i), column = matrices.columnOf(part, i);
        float &score = scores[part][i], slope;
        if (all || sees(shared.queries[row], shared.keys[column]))
          score = scoreOf(x, score, biasAt(x, b, n, g, q0 + row, k0 + column),
                          slope);
        else
          score = minusInfinity<float>();
        best[i / 2] = score > best[i / 2] ? score : best[i / 2];
      }
    float shift[2], shrink[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      best[i] = matrices.overRow(
          best[i], [](float a, float b) { return a > b ? a : b; });
      // If a row has seen no key yet, its maximum is -inf. Then 0 is subtracted
      // instead of the maximum, because exp(-inf - -inf) would be NaN.
      shift[i] = best[i] == minusInfinity<float>() ? 0 : best[i];
      shrink[i] = expOf(high[i] - shift[i]);
      high[i] = best[i];
      total[i] *= shrink[i];
    }
#pragma unroll
    for (int part = 0; part < tile / 8; ++part)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores[part][i] = expOf(scores[part][i] - shift[i / 2]);
        total[i / 2] += scores[part][i]; // also of weights that are dropped
        if (!kept.has(matrices.rowOf(i), matrices.columnOf(part, i)))
          scores[part][i] = 0;
      }
#pragma unroll
    for (int part = 0; part < wide / 8; ++part)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        sums[part][i] *= shrink[i / 2];
    matrices.addWeighted(scores, shared.tile[2], sums);
  }

  float factors[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    total[i] =
        matrices.overRow(total[i], [](float a, float b) { return a + b; });
    // A NaN score makes the sum NaN, which must appear in the output.
    bool isEmpty = total[i] == 0;
    factors[i] = isEmpty ? 0 : 1 / total[i];
    if constexpr (drops)
      factors[i] *= float(x.keptScale);
    int64_t row = q0 + matrices.rowOf(2 * i);
    if (matrices.t == 0 && row < x.qLen) {
      const int64_t *strides = x.lse.strides;
      static_cast<float *>(x.lse.data)[b * strides[0] + row * strides[1] +
                                       n * strides[2] + g * strides[3]] =
          isEmpty ? minusInfinity<float>() : high[i] + logOf(total[i]);
    }
  }
  matrices.write(HeadRows(x.o, b, n, g, q0, x.qLen, x.dv, nullptr), sums,
                 factors[0], factors[1]);
}
} // namespace

#define CLEAVE_ATTENTION(wide)                                                 \
  extern "C" __global__ void __launch_bounds__(attentionMatrixThreads)         \
      cleave_attention_bf16_##wide(AttentionArguments x) {                     \
    forward<wide, false>(x);                                                   \
  }                                                                            \
  extern "C" __global__ void __launch_bounds__(attentionMatrixThreads)         \
      cleave_attention_dropped_bf16_##wide(AttentionArguments x) {             \
    forward<wide, true>(x);                                                    \
  }
CLEAVE_ATTENTION(64)
CLEAVE_ATTENTION(128)

CLEAVE_KERNELS(attention_bf16, CLEAVE_KERNEL(attention_bf16_64),
               CLEAVE_KERNEL(attention_bf16_128),
               CLEAVE_KERNEL(attention_dropped_bf16_64),
               CLEAVE_KERNEL(attention_dropped_bf16_128))
