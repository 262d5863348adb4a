// Products of attention tiles in bf16, summed in f32. Each of the 4 warps of a
// block computes 16 rows and all 64 columns of a tile of scores.
#ifndef CLEAVE_RUNTIME_CUDA_KERNELS_ATTENTION_MATRICES_H
#define CLEAVE_RUNTIME_CUDA_KERNELS_ATTENTION_MATRICES_H

#include "attention_tiles.h"
#include "matrix_units.h"

namespace cleave::cuda::device {

template <int tiles, int wide> struct AttentionMatrices {
  static constexpr int tile = attentionMatrixTile, pitch = wide + 8;
  using Shared = AttentionMatrixShared<tiles, wide>;
  using Tile = uint16_t[tile][pitch];
  // The scores that a lane holds. Lane 4 g + t has rows g and g + 8 of its
  // warp's 16 rows. Of every 8 columns of these rows it has two adjacent ones.
  using Scores = float[tile / 8][4];
  using Sums = float[wide / 8][4];

  Shared &shared;
  int warpRow = int(threadIdx.x) / 32 * 16;
  int g = int(threadIdx.x) % 32 / 4, t = int(threadIdx.x) % 4;

  CLEAVE_DEVICE AttentionMatrices()
      : shared(*reinterpret_cast<Shared *>(sharedMemory())) {}

  CLEAVE_DEVICE int rowOf(int i) const { return warpRow + g + i / 2 * 8; }
  CLEAVE_DEVICE int columnOf(int part, int i) const {
    return 8 * part + 2 * t + i % 2;
  }

  /// Copies rows into shared memory. Rows beyond the end and hidden keys become
  /// zeros.
  CLEAVE_DEVICE void stage(const HeadRows &rows, Tile &to) const {
    constexpr int units = wide / 8;
#pragma unroll
    for (int i = 0; i < tile * units / attentionMatrixThreads; ++i) {
      int at = int(threadIdx.x) + i * attentionMatrixThreads;
      int row = at / units, feature = at % units * 8;
      bool isIn = row < rows.rows && feature < rows.features &&
                  (!rows.keys || rows.keys[row].isSeen);
      uint4 bits{0, 0, 0, 0};
      if (isIn)
        bits = *reinterpret_cast<const uint4 *>(
            static_cast<const uint16_t *>(rows.data) + rows.first +
            row * rows.rowStride + feature);
      *reinterpret_cast<uint4 *>(&to[row][feature]) = bits;
    }
  }

  /// scores = left right^T
  CLEAVE_DEVICE void multiplyRows(const Tile &left, const Tile &right,
                                  Scores &scores) const {
    clear(scores);
#pragma unroll
    for (int k = 0; k < wide; k += 16) {
      uint32_t a[4];
      loadLeft<false, pitch>(a, &left[warpRow][k]);
#pragma unroll
      for (int part = 0; part < tile / 8; part += 2) {
        uint32_t b[4];
        loadRight<false, pitch>(b, &right[8 * part][k]);
        multiplyAdd(scores[part], a, b[0], b[1]);
        multiplyAdd(scores[part + 1], a, b[2], b[3]);
      }
    }
  }

  /// Computes sums += weights x right. The weights are rounded to bf16 before.
  CLEAVE_DEVICE void addWeighted(const Scores &weights, const Tile &right,
                                 Sums &sums) const {
#pragma unroll
    for (int k = 0; k < tile; k += 16) {
      const float (&low)[4] = weights[k / 8], (&high)[4] = weights[k / 8 + 1];
      uint32_t a[4] = {packed(low[0], low[1]), packed(low[2], low[3]),
                       packed(high[0], high[1]), packed(high[2], high[3])};
#pragma unroll
      for (int part = 0; part < wide / 8; part += 2) {
        uint32_t b[4];
        loadRight<true, pitch>(b, &right[k][8 * part]);
        multiplyAdd(sums[part], a, b[0], b[1]);
        multiplyAdd(sums[part + 1], a, b[2], b[3]);
      }
    }
  }

  template <int parts> CLEAVE_DEVICE void clear(float (&sums)[parts][4]) const {
#pragma unroll
    for (int part = 0; part < parts; ++part)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        sums[part][i] = 0;
  }

  /// Writes the thread's sums to the output. The thread holds rows g and g + 8
  /// of its warp: row g is multiplied by `first`, row g + 8 by `second`.
  CLEAVE_DEVICE void write(const HeadRows &to, const Sums &sums, float first,
                           float second) const {
    auto *out = static_cast<uint16_t *>(const_cast<void *>(to.data)) + to.first;
#pragma unroll
    for (int part = 0; part < wide / 8; ++part)
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        int64_t row = rowOf(i), feature = columnOf(part, i);
        float factor = i ? second : first;
        if (row < to.rows && feature < to.features)
          *reinterpret_cast<uint32_t *>(out + row * to.rowStride + feature) =
              packed(sums[part][i] * factor, sums[part][i + 1] * factor);
      }
  }

  /// The maximum or sum over all columns of a row, across the lanes that share
  /// the row.
  template <class Op> CLEAVE_DEVICE float overRow(float x, Op op) const {
    x = op(x, __shfl_xor_sync(allLanes, x, 1));
    return op(x, __shfl_xor_sync(allLanes, x, 2));
  }
};

} // namespace cleave::cuda::device

#endif // CLEAVE_RUNTIME_CUDA_KERNELS_ATTENTION_MATRICES_H
