// One tile of a bf16 product on tensor cores, summed in f32. Each of 8 warps
// computes 32 rows and 64 columns.
#ifndef CLEAVE_RUNTIME_CUDA_KERNELS_PRODUCT_MATRICES_H
#define CLEAVE_RUNTIME_CUDA_KERNELS_PRODUCT_MATRICES_H

#include "matrix_units.h"

namespace cleave::cuda::device {

constexpr int matrixDepth = 32;

/// An operand of a product. `inner` is its size along the dimension that is
/// summed over, `outer` the size along the other dimension. place(o, i) is the
/// offset of the element with index o along the outer and i along the inner
/// dimension. Along the inner dimension (the outer one if transposed), elements
/// are contiguous in units of 16 bytes, and the size is a multiple of 8.
template <bool isTransposed, class Place> struct MatrixSide {
  const uint16_t *from;
  int64_t outer, inner; // sizes
  Place place;

  static constexpr int along = isTransposed ? int(matrixRows) : matrixDepth;
  static constexpr int across = isTransposed ? matrixDepth : int(matrixRows);
  static constexpr int pitch = along + 8, elements = across * pitch;
  static constexpr int perThread = across * along / 8 / productThreads;

  CLEAVE_DEVICE void load(int64_t outer0, int64_t inner0, uint4 *units) const {
#pragma unroll
    for (int i = 0; i < perThread; ++i) {
      int unit = int(threadIdx.x) + i * productThreads;
      int slow = unit / (along / 8), fast = unit % (along / 8) * 8;
      int64_t o = outer0 + (isTransposed ? fast : slow);
      int64_t k = inner0 + (isTransposed ? slow : fast);
      units[i] = uint4{0, 0, 0, 0};
      if (o < outer && k < inner)
        units[i] = *reinterpret_cast<const uint4 *>(from + place(o, k));
    }
  }
  CLEAVE_DEVICE void store(uint16_t *to, const uint4 *units) const {
#pragma unroll
    for (int i = 0; i < perThread; ++i) {
      int unit = int(threadIdx.x) + i * productThreads;
      int slow = unit / (along / 8), fast = unit % (along / 8) * 8;
      *reinterpret_cast<uint4 *>(to + slow * pitch + fast) = units[i];
    }
  }
  /// Returns the address in a tile of the fragment that begins at (row, k).
  CLEAVE_DEVICE static const uint16_t *at(const uint16_t *tile, int row,
                                          int k) {
    return tile + (isTransposed ? k * pitch + row : row * pitch + k);
  }
};

template <bool isTransposed, class Place>
CLEAVE_DEVICE MatrixSide<isTransposed, Place>
matrixSide(const void *from, int64_t outer, int64_t inner, Place place) {
  return {static_cast<const uint16_t *>(from), outer, inner, place};
}

/// The sums that a lane holds: [2 blocks of 16 rows][8 blocks of 8 columns][the
/// lane's 4 elements of the block].
using MatrixSums = float[2][8][4];

template <bool leftTransposed, bool rightTransposed, class L, class R>
CLEAVE_DEVICE void multiplyMatrices(const MatrixSide<leftTransposed, L> &left,
                                    const MatrixSide<rightTransposed, R> &right,
                                    int64_t row0, int64_t column0,
                                    MatrixSums &sums) {
  using Left = MatrixSide<leftTransposed, L>;
  using Right = MatrixSide<rightTransposed, R>;
  constexpr int bytes = 2 * (Left::elements + Right::elements);
  __shared__ __attribute__((aligned(16))) unsigned char memory[bytes];
  auto *leftTile = reinterpret_cast<uint16_t *>(memory);
  auto *rightTile = leftTile + Left::elements;
  int warp = int(threadIdx.x) / 32;
  int warpRow = warp % 4 * 32, warpColumn = warp / 4 * 64;
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int part = 0; part < 8; ++part)
#pragma unroll
      for (int j = 0; j < 4; ++j)
        sums[i][part][j] = 0;
  uint4 nextLeft[Left::perThread], nextRight[Right::perThread];
  left.load(row0, 0, nextLeft);
  right.load(column0, 0, nextRight);
  for (int64_t depth = 0; depth < left.inner; depth += matrixDepth) {
    __syncthreads();
    left.store(leftTile, nextLeft);
    right.store(rightTile, nextRight);
    __syncthreads();
    // The next tiles are loaded while this one is multiplied.
    if (depth + matrixDepth < left.inner) {
      left.load(row0, depth + matrixDepth, nextLeft);
      right.load(column0, depth + matrixDepth, nextRight);
    }
#pragma unroll
    for (int k = 0; k < matrixDepth; k += 16) {
      uint32_t a[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i)
        loadLeft<leftTransposed, Left::pitch>(
            a[i], Left::at(leftTile, warpRow + 16 * i, k));
#pragma unroll
      for (int part = 0; part < 8; part += 2) {
        uint32_t b[4];
        loadRight<rightTransposed, Right::pitch>(
            b, Right::at(rightTile, warpColumn + 8 * part, k));
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          multiplyAdd(sums[i][part], a[i], b[0], b[1]);
          multiplyAdd(sums[i][part + 1], a[i], b[2], b[3]);
        }
      }
    }
  }
}

/// Calls put(row, column, sum, next) for pairs of adjacent elements in a row of
/// the result: `sum` is the element at `column`, `next` the one at `column` +
/// 1.
template <class Put>
CLEAVE_DEVICE void forPairs(const MatrixSums &sums, int64_t row0,
                            int64_t column0, int64_t rows, int64_t columns,
                            Put put) {
  int warp = int(threadIdx.x) / 32, lane = ownLane();
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int part = 0; part < 8; ++part)
#pragma unroll
      for (int j = 0; j < 4; j += 2) {
        int64_t row = row0 + warp % 4 * 32 + 16 * i + lane / 4 + j / 2 * 8;
        int64_t column = column0 + warp / 4 * 64 + 8 * part + lane % 4 * 2;
        if (row < rows && column < columns)
          put(row, column, sums[i][part][j], sums[i][part][j + 1]);
      }
}

} // namespace cleave::cuda::device

#endif // CLEAVE_RUNTIME_CUDA_KERNELS_PRODUCT_MATRICES_H
