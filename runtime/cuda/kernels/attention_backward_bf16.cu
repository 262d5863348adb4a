// The backward pass of attention in bf16 on tensor cores, structured like
// attention_backward.cu.

#include "attention_gradient.h"
#include "attention_matrices.h"

using namespace cleave::cuda;
using namespace cleave::cuda::device;

namespace {
template <int wide, bool drops>
CLEAVE_DEVICE void backwardQueries(const AttentionArguments &x) {
  using Matrices = AttentionMatrices<4, wide>;
  constexpr int tile = Matrices::tile;
  Matrices matrices;
  auto &shared = matrices.shared;
  KeptWeights<drops, typename Matrices::Shared, tile> kept;
  auto &q = shared.tile[0], &dO = shared.tile[1], &k = shared.tile[2],
       &v = shared.tile[3];
  int64_t heads = x.b * x.n * x.g, head = blockIdx.x % heads;
  int64_t q0 = (gridDim.x / heads - 1 - blockIdx.x / heads) * tile;
  int64_t g = head % x.g, n = head / x.g % x.n, b = head / x.g / x.n;
  if (threadIdx.x < tile)
    loadQueries<float>(x, shared, int(threadIdx.x), b, n, g, q0 + threadIdx.x);
  __syncthreads();
  QueryBounds bounds(shared.queries, int(minOf(x.qLen - q0, tile)), tile);
  matrices.stage(HeadRows(x.q, b, n, g, q0, x.qLen, x.d, nullptr), q);
  matrices.stage(HeadRows(x.dO, b, n, g, q0, x.qLen, x.dv, nullptr), dO);

  typename Matrices::Sums sums;
  matrices.clear(sums);
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
    matrices.stage(HeadRows(x.k, b, n, 0, k0, x.kLen, x.d, shared.keys), k);
    matrices.stage(HeadRows(x.v, b, n, 0, k0, x.kLen, x.dv, shared.keys), v);
    kept.draw(x, b, n, g, q0, k0);
    __syncthreads();
    typename Matrices::Scores scores, dP;
    matrices.multiplyRows(q, k, scores);
    matrices.multiplyRows(dO, v, dP);
#pragma unroll
    for (int part = 0; part < tile / 8; ++part)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        int row = matrices.rowOf(i), column = matrices.columnOf(part, i);
        bool isSeen = all || sees(shared.queries[row], shared.keys[column]);
        float weight;
        gradientOf<drops>(x, isSeen, kept.has(row, column),
                          biasAt(x, b, n, g, q0 + row, k0 + column),
                          shared.lse[row], shared.delta[row], scores[part][i],
                          dP[part][i], weight, dP[part][i]);
      }
    matrices.addWeighted(dP, k, sums);
  }
  matrices.write(HeadRows(x.dq, b, n, g, q0, x.qLen, x.d, nullptr), sums, 1, 1);
}

template <int wide, bool drops>
CLEAVE_DEVICE void backwardKeys(const AttentionArguments &x) {
  using Matrices = AttentionMatrices<4, wide>;
  constexpr int tile = Matrices::tile;
  Matrices matrices;
  auto &shared = matrices.shared;
  KeptWeights<drops, typename Matrices::Shared, tile> kept;
  auto &q = shared.tile[0], &dO = shared.tile[1], &k = shared.tile[2],
       &v = shared.tile[3];
  int64_t heads = x.b * x.n, head = blockIdx.x % heads;
  int64_t k0 = blockIdx.x / heads * tile, n = head % x.n, b = head / x.n;
  if (threadIdx.x < tile)
    shared.keys[threadIdx.x] = keyAt(x, b, k0 + threadIdx.x);
  __syncthreads();
  KeyBounds bounds(shared.keys, tile);
  matrices.stage(HeadRows(x.k, b, n, 0, k0, x.kLen, x.d, shared.keys), k);
  matrices.stage(HeadRows(x.v, b, n, 0, k0, x.kLen, x.dv, shared.keys), v);

  typename Matrices::Sums dk, dV;
  matrices.clear(dk);
  matrices.clear(dV);
  TileRange range = bounds.tiles(x, tile);
  for (int64_t g = 0; g < x.g; ++g)
    for (int64_t q0 = range.begin * tile; q0 < range.end * tile; q0 += tile) {
      __syncthreads();
      bool some = false, all = true;
      if (int i = int(threadIdx.x); i < tile) {
        loadQueries<float>(x, shared, i, b, n, g, q0 + i);
        some = bounds.someSeenBy(shared.queries[i]);
        all = bounds.allSeenBy(shared.queries[i]);
      }
      if (!__syncthreads_or(some))
        continue;
      all = __syncthreads_and(all);
      matrices.stage(HeadRows(x.q, b, n, g, q0, x.qLen, x.d, nullptr), q);
      matrices.stage(HeadRows(x.dO, b, n, g, q0, x.qLen, x.dv, nullptr), dO);
      kept.draw(x, b, n, g, q0, k0);
      __syncthreads();
      typename Matrices::Scores scores, dP;
      matrices.multiplyRows(k, q, scores);
      matrices.multiplyRows(v, dO, dP);
#pragma unroll
      for (int part = 0; part < tile / 8; ++part)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          int row = matrices.rowOf(i), column = matrices.columnOf(part, i);
          bool isSeen = all || sees(shared.queries[column], shared.keys[row]);
          gradientOf<drops>(x, isSeen, kept.has(column, row),
                            biasAt(x, b, n, g, q0 + column, k0 + row),
                            shared.lse[column], shared.delta[column],
                            scores[part][i], dP[part][i], scores[part][i],
                            dP[part][i]);
        }
      matrices.addWeighted(scores, dO, dV);
      matrices.addWeighted(dP, q, dk);
    }
  matrices.write(HeadRows(x.dk, b, n, 0, k0, x.kLen, x.d, nullptr), dk, 1, 1);
  matrices.write(HeadRows(x.dV, b, n, 0, k0, x.kLen, x.dv, nullptr), dV, 1, 1);
}
} // namespace

#define CLEAVE_BACKWARD(name, wide, drops)                                     \
  extern "C" __global__ void __launch_bounds__(attentionMatrixThreads)         \
      cleave_attention_dq_##name(AttentionArguments x) {                       \
    backwardQueries<wide, drops>(x);                                           \
  }                                                                            \
  extern "C" __global__ void __launch_bounds__(attentionMatrixThreads)         \
      cleave_attention_dkv_##name(AttentionArguments x) {                      \
    backwardKeys<wide, drops>(x);                                              \
  }
CLEAVE_BACKWARD(bf16_64, 64, false)
CLEAVE_BACKWARD(bf16_128, 128, false)
CLEAVE_BACKWARD(dropped_bf16_64, 64, true)
CLEAVE_BACKWARD(dropped_bf16_128, 128, true)

CLEAVE_KERNELS(attention_backward_bf16, CLEAVE_KERNEL(attention_dq_bf16_64),
               CLEAVE_KERNEL(attention_dq_bf16_128),
               CLEAVE_KERNEL(attention_dkv_bf16_64),
               CLEAVE_KERNEL(attention_dkv_bf16_128),
               CLEAVE_KERNEL(attention_dq_dropped_bf16_64),
               CLEAVE_KERNEL(attention_dq_dropped_bf16_128),
               CLEAVE_KERNEL(attention_dkv_dropped_bf16_64),
               CLEAVE_KERNEL(attention_dkv_dropped_bf16_128))
