// Grouped matrix products in bf16 on tensor cores, for operands whose rows
// begin and end at addresses that are multiples of 16 bytes.

#include "group_tiles.h"
#include "product_matrices.h"

using namespace cleave::cuda;
using namespace cleave::cuda::device;

namespace {
/// Writes two adjacent elements of a row of the result, in one access if they
/// are in the same 32-bit word.
CLEAVE_DEVICE void put(const GroupedArguments &x, void *to, int64_t at,
                       int64_t step, bool hasNext, float sum, float next) {
  if (x.isWide) {
    static_cast<float *>(to)[at] = sum;
    if (hasNext)
      static_cast<float *>(to)[at + step] = next;
    return;
  }
  auto *out = static_cast<Bf16 *>(to);
  if (step == 1 && hasNext && reinterpret_cast<uintptr_t>(out + at) % 4 == 0) {
    *reinterpret_cast<uint32_t *>(out + at) = packed(sum, next);
    return;
  }
  out[at] = narrow(sum);
  if (hasNext)
    out[at + step] = narrow(next);
}

/// `alongRows` says which elements of a matrix are contiguous in memory: those
/// of a row if true, those of a column if false.
template <bool alongRows>
CLEAVE_DEVICE void multiplyRows(const GroupedArguments &x) {
  RowTile at(x, matrixRows);
  if (!at.isThere)
    return;
  int64_t column0 = blockIdx.x % x.columnTiles * matrixColumns;
  auto [m, begin, count, row0, isThere] = at;
  MatrixSums sums = {};
  if (m < x.e) {
    __shared__ int64_t rowAt[matrixRows];
    for (int64_t i = threadIdx.x; i < matrixRows; i += blockDim.x)
      rowAt[i] = row0 + i < count ? x.tables.aAt[begin + row0 + i] : 0;
    __syncthreads();
    auto left = matrixSide<false>(x.a, count, x.k,
                                  [&, row0 = row0](int64_t row, int64_t depth) {
                                    return rowAt[row - row0] + depth;
                                  });
    auto right = matrixSide<alongRows>(
        x.w, x.n, x.k, [&, m = m](int64_t column, int64_t depth) {
          return m * x.wMatrix + depth * x.wRow + column * x.wCol;
        });
    multiplyMatrices(left, right, row0, column0, sums);
  }
  forPairs(
      sums, row0, column0, count, x.n,
      [&, begin = begin](int64_t row, int64_t column, float sum, float next) {
        put(x, const_cast<void *>(x.c),
            x.tables.cAt[begin + row] + column * x.cCol, x.cCol,
            column + 1 < x.n, sum, next);
      });
}
} // namespace

extern "C" __global__ void __launch_bounds__(productThreads)
    cleave_grouped_bf16(GroupedArguments x) {
  multiplyRows<true>(x);
}
extern "C" __global__ void __launch_bounds__(productThreads)
    cleave_grouped_bf16_columns(GroupedArguments x) {
  multiplyRows<false>(x);
}

extern "C" __global__ void __launch_bounds__(productThreads)
    cleave_grouped_outer_bf16(GroupedArguments x) {
  int64_t column0 = blockIdx.x % x.columnTiles * matrixColumns;
  int64_t rest = blockIdx.x / x.columnTiles;
  int64_t row0 = rest % x.rowTiles * matrixRows, m = rest / x.rowTiles;
  GroupedRows rows = rowsOf(x.tables, m);
  auto left =
      matrixSide<true>(x.a, x.k, rows.count, [&](int64_t row, int64_t depth) {
        return x.tables.aAt[rows.begin + depth] + row;
      });
  auto right = matrixSide<true>(
      x.c, x.n, rows.count, [&](int64_t column, int64_t depth) {
        return x.tables.cAt[rows.begin + depth] + column;
      });
  MatrixSums sums;
  multiplyMatrices(left, right, row0, column0, sums);
  forPairs(sums, row0, column0, x.k, x.n,
           [&](int64_t row, int64_t column, float sum, float next) {
             put(x, const_cast<void *>(x.w),
                 m * x.wMatrix + row * x.wRow + column * x.wCol, x.wCol,
                 column + 1 < x.n, sum, next);
           });
}

CLEAVE_KERNELS(grouped_bf16, CLEAVE_KERNEL(grouped_bf16),
               CLEAVE_KERNEL(grouped_bf16_columns),
               CLEAVE_KERNEL(grouped_outer_bf16))
