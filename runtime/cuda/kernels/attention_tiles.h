// Products of attention tiles in f32 or f64 by 16 x 16 threads. A tile has 16 *
// side queries and as many keys. Thread (x, y) computes the scores of rows side
// * y to side * y + side - 1, in the columns x, x + 16, x + 32 and so on. Of
// every 64 features of the result it computes features 4 x to 4 x + 3.
#ifndef CLEAVE_RUNTIME_CUDA_KERNELS_ATTENTION_TILES_H
#define CLEAVE_RUNTIME_CUDA_KERNELS_ATTENTION_TILES_H

#include "attention_mask.h"
#include "product.h"

namespace cleave::cuda::device {

/// Rows of one head of an array.
struct HeadRows {
  const void *data;
  int64_t first, rowStride, featureStride; // elements
  int64_t rows, features;
  const AttentionKey *keys; // null if no mask hides rows

  CLEAVE_DEVICE HeadRows(const AttentionArray &x, int64_t b, int64_t n,
                         int64_t g, int64_t row0, int64_t length,
                         int64_t features, const AttentionKey *keys)
      : data(x.data), first(b * x.strides[0] + row0 * x.strides[1] +
                            n * x.strides[2] + g * x.strides[3]),
        rowStride(x.strides[1]), featureStride(x.strides[4]),
        rows(length - row0), features(features), keys(keys) {}
};

template <class T, int side> struct AttentionTiles {
  using Shared = AttentionShared<T, side>;
  static constexpr int tile = Shared::tile;
  using Scores = T[side][side];
  // A thread's part of the result: [row][part of 64 features][4 features].
  template <int wide> using Sums = T[side][wide][4];

  Shared &shared;
  bool isBf16;
  int x = int(threadIdx.x) % 16, y = int(threadIdx.x) / 16;

  CLEAVE_DEVICE AttentionTiles(bool isBf16)
      : shared(*reinterpret_cast<Shared *>(sharedMemory())), isBf16(isBf16) {}

  /// Copies features [from, from + 64) of the rows into shared memory. Features
  /// beyond the end and hidden keys, which may hold any value, become zeros.
  CLEAVE_DEVICE void stage(const HeadRows &rows, int64_t from,
                           T (*to)[attentionFeatures + 4]) {
    bool alongRow = rows.featureStride == 1;
#pragma unroll 4
    for (int at = int(threadIdx.x); at < tile * attentionFeatures;
         at += attentionThreads) {
      int row = alongRow ? at / attentionFeatures : at % tile;
      int feature = alongRow ? at % attentionFeatures : at / tile;
      bool isIn = row < rows.rows && from + feature < rows.features &&
                  (!rows.keys || rows.keys[row].isSeen);
      to[row][feature] =
          isIn ? loadAs<T>(rows.data,
                           rows.first + row * rows.rowStride +
                               (from + feature) * rows.featureStride,
                           isBf16)
               : T(0);
    }
  }

  /// scores = left right^T
  CLEAVE_DEVICE void multiplyRows(const HeadRows &left, const HeadRows &right,
                                  Scores &scores) {
#pragma unroll
    for (int i = 0; i < side; ++i)
#pragma unroll
      for (int j = 0; j < side; ++j)
        scores[i][j] = 0;
    for (int64_t from = 0; from < left.features; from += attentionFeatures) {
      __syncthreads();
      stage(left, from, shared.left);
      stage(right, from, shared.right);
      __syncthreads();
#pragma unroll 4
      for (int f = 0; f < attentionFeatures; f += 4) {
        T a[side][4], b[side][4];
#pragma unroll
        for (int i = 0; i < side; ++i) {
          readFour(&shared.left[y * side + i][f], a[i]);
          readFour(&shared.right[x + 16 * i][f], b[i]);
        }
#pragma unroll
        for (int i = 0; i < side; ++i)
#pragma unroll
          for (int j = 0; j < side; ++j)
#pragma unroll
            for (int c = 0; c < 4; ++c)
              scores[i][j] += a[i][c] * b[j][c];
      }
    }
  }

  /// sums += weights x right, with the weights that all threads have stored in
  /// shared memory.
  template <int wide>
  CLEAVE_DEVICE void addWeighted(const HeadRows &right, Sums<wide> &sums) {
#pragma unroll
    for (int part = 0; part < wide; ++part) {
      if (part * attentionFeatures >= right.features)
        break;
      __syncthreads();
      stage(right, part * attentionFeatures, shared.right);
      __syncthreads();
#pragma unroll 2
      for (int row = 0; row < tile; row += 4) {
        T a[side][4], b[4][4];
#pragma unroll
        for (int i = 0; i < side; ++i)
          readFour(&shared.weights[y * side + i][row], a[i]);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          readFour(&shared.right[row + i][4 * x], b[i]);
#pragma unroll
        for (int i = 0; i < side; ++i)
#pragma unroll
          for (int j = 0; j < 4; ++j)
#pragma unroll
            for (int c = 0; c < 4; ++c)
              sums[i][part][c] += a[i][j] * b[j][c];
      }
    }
  }

  template <int wide> CLEAVE_DEVICE void clear(Sums<wide> &sums) {
#pragma unroll
    for (int i = 0; i < side; ++i)
#pragma unroll
      for (int part = 0; part < wide; ++part)
#pragma unroll
        for (int c = 0; c < 4; ++c)
          sums[i][part][c] = 0;
  }

  CLEAVE_DEVICE void putWeights(const Scores &weights) {
    __syncthreads(); // until the previous weights have been read
#pragma unroll
    for (int i = 0; i < side; ++i)
#pragma unroll
      for (int j = 0; j < side; ++j)
        shared.weights[y * side + i][x + 16 * j] = weights[i][j];
  }

  /// Writes factor[i] times the sums.
  template <int wide>
  CLEAVE_DEVICE void write(const HeadRows &to, const Sums<wide> &sums,
                           const T *factors) {
#pragma unroll
    for (int i = 0; i < side; ++i)
#pragma unroll
      for (int part = 0; part < wide; ++part)
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          int64_t row = y * side + i,
                  feature = part * attentionFeatures + 4 * x + c;
          if (row < to.rows && feature < to.features)
            storeAs<T>(const_cast<void *>(to.data),
                       to.first + row * to.rowStride +
                           feature * to.featureStride,
                       sums[i][part][c] * factors[i], isBf16);
        }
  }
};

template <class T> CLEAVE_DEVICE T minusInfinity() {
  return T(-__builtin_huge_valf());
}

CLEAVE_DEVICE int64_t biasAt(const AttentionArguments &x, int64_t b, int64_t n,
                             int64_t g, int64_t query, int64_t key) {
  return b * x.bias.strides[0] + query * x.bias.strides[1] +
         n * x.bias.strides[2] + g * x.bias.strides[3] +
         key * x.bias.strides[4];
}

/// Converts the dot product of a query and a key to a score: scales it, applies
/// the soft cap and adds the bias. `slope` receives the derivative of the soft
/// cap.
template <class T>
CLEAVE_DEVICE T scoreOf(const AttentionArguments &x, T product, int64_t biasAt,
                        T &slope) {
  T score = product * T(x.scale);
  slope = 1;
  if (x.softcap != 0) {
    T capped = tanhOf(score / T(x.softcap));
    score = capped * T(x.softcap);
    slope = 1 - capped * capped;
  }
  if (x.bias.data)
    score += static_cast<const T *>(x.bias.data)[biasAt];
  return score;
}

} // namespace cleave::cuda::device

#endif // CLEAVE_RUNTIME_CUDA_KERNELS_ATTENTION_TILES_H
