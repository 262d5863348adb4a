// One tile of a matrix product through shared memory, in f32 or f64: a thread
// computes 4 x 4 elements. bf16 is widened on the way, and summed in f32.
#ifndef CLEAVE_RUNTIME_CUDA_KERNELS_PRODUCT_H
#define CLEAVE_RUNTIME_CUDA_KERNELS_PRODUCT_H

#include "device_code.h"

namespace cleave::cuda::device {

constexpr int productDepth = 16, productSide = 4;

template <class T>
CLEAVE_DEVICE T loadAs(const void *from, int64_t at, bool isBf16) {
  if constexpr (sizeof(T) == 4)
    if (isBf16)
      return widen(static_cast<const Bf16 *>(from)[at]);
  return static_cast<const T *>(from)[at];
}
template <class T>
CLEAVE_DEVICE void storeAs(void *to, int64_t at, T value, bool isBf16) {
  if constexpr (sizeof(T) == 4)
    if (isBf16) {
      static_cast<Bf16 *>(to)[at] = narrow(value);
      return;
    }
  static_cast<T *>(to)[at] = value;
}

template <class T> struct ProductTile {
  // Tiles of both operands, stored as [depth][rows] so that a thread reads four
  // adjacent rows at once.
  T left[productDepth][productRows + 4],
      right[productDepth][productColumns + 4];
};

/// An operand of a product. `inner` is its size along the dimension that is
/// summed, `outer` its size along the other dimension (rows of A or columns of
/// B). place(o, i) is the offset of the element with index o along the outer
/// and i along the inner dimension. If `alongInner`, elements that are adjacent
/// along the inner dimension are contiguous.
template <class T, class Place> struct ProductSide {
  const void *from;
  bool isBf16, alongInner;
  int64_t outer, inner; // sizes
  Place place;

  static constexpr int perThread = productRows * productDepth / productThreads;

  CLEAVE_DEVICE void locate(int i, int &row, int &depth) const {
    int at = int(threadIdx.x) + i * productThreads;
    row = alongInner ? at / productDepth : at % int(productRows);
    depth = alongInner ? at % productDepth : at / int(productRows);
  }
  CLEAVE_DEVICE void load(int64_t row0, int64_t depth0, T *values) const {
#pragma unroll
    for (int i = 0; i < perThread; ++i) {
      int row, depth;
      locate(i, row, depth);
      bool isIn = row0 + row < outer && depth0 + depth < inner;
      values[i] =
          isIn ? loadAs<T>(from, place(row0 + row, depth0 + depth), isBf16)
               : T(0);
    }
  }
  template <int pitch>
  CLEAVE_DEVICE void store(T (*to)[pitch], const T *values) const {
#pragma unroll
    for (int i = 0; i < perThread; ++i) {
      int row, depth;
      locate(i, row, depth);
      to[depth][row] = values[i];
    }
  }
};

template <class T> CLEAVE_DEVICE void readFour(const T *from, T *to) {
  constexpr int units = 4 * sizeof(T) / 16;
  uint4 bits[units];
#pragma unroll
  for (int i = 0; i < units; ++i)
    bits[i] = reinterpret_cast<const uint4 *>(from)[i];
  memcpy(to, bits, sizeof(bits));
}

/// Computes a thread's part of a tile of the product: sums[i][j] is the sum of
/// left(row0 + 4 y + i, k) * right(column0 + 4 x + j, k) over k, with x =
/// thread % 16 and y = thread / 16. Terms are added in the order of k.
template <class T, class Left, class Right>
CLEAVE_DEVICE void multiplyTile(const Left &left, const Right &right,
                                int64_t row0, int64_t column0,
                                T (*sums)[productSide]) {
  static_assert(productRows == productColumns);
  __shared__
      __attribute__((aligned(16))) unsigned char bytes[sizeof(ProductTile<T>)];
  auto &tile = *reinterpret_cast<ProductTile<T> *>(bytes);
  int x = int(threadIdx.x) % 16, y = int(threadIdx.x) / 16;
#pragma unroll
  for (int i = 0; i < productSide; ++i)
#pragma unroll
    for (int j = 0; j < productSide; ++j)
      sums[i][j] = 0;
  T nextLeft[Left::perThread], nextRight[Right::perThread];
  left.load(row0, 0, nextLeft);
  right.load(column0, 0, nextRight);
  for (int64_t depth = 0; depth < left.inner; depth += productDepth) {
    __syncthreads();
    left.store(tile.left, nextLeft);
    right.store(tile.right, nextRight);
    __syncthreads();
    // The next tiles are loaded while this one is multiplied.
    if (depth + productDepth < left.inner) {
      left.load(row0, depth + productDepth, nextLeft);
      right.load(column0, depth + productDepth, nextRight);
    }
#pragma unroll
    for (int k = 0; k < productDepth; ++k) {
      T a[productSide], b[productSide];
      readFour(&tile.left[k][y * productSide], a);
      readFour(&tile.right[k][x * productSide], b);
#pragma unroll
      for (int i = 0; i < productSide; ++i)
#pragma unroll
        for (int j = 0; j < productSide; ++j)
          sums[i][j] += a[i] * b[j];
    }
  }
}

/// Calls put(row, column, sum) for those elements of the thread that are within
/// the result's `rows` and `columns`.
template <class T, class Put>
CLEAVE_DEVICE void forElements(const T (*sums)[productSide], int64_t row0,
                               int64_t column0, int64_t rows, int64_t columns,
                               Put put) {
  int64_t x = column0 + int(threadIdx.x) % 16 * productSide,
          y = row0 + int(threadIdx.x) / 16 * productSide;
#pragma unroll
  for (int i = 0; i < productSide; ++i)
#pragma unroll
    for (int j = 0; j < productSide; ++j)
      if (y + i < rows && x + j < columns)
        put(y + i, x + j, sums[i][j]);
}

template <class T, class Place>
CLEAVE_DEVICE ProductSide<T, Place> sideOf(const void *from, bool isBf16,
                                           bool alongInner, int64_t outer,
                                           int64_t inner, Place place) {
  return {from, isBf16, alongInner, outer, inner, place};
}

} // namespace cleave::cuda::device

#endif // CLEAVE_RUNTIME_CUDA_KERNELS_PRODUCT_H
