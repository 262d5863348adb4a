// Grouped matrix products in bf16 on Hopper's tensor cores, for operands and
// results whose rows begin and end at addresses that are multiples of 16 bytes.

#include "group_tiles.h"
#include "warpgroup_product.h"

using namespace cleave::cuda;
using namespace cleave::cuda::device;

namespace {
/// `alongRows` says which elements of a matrix are contiguous in memory: those
/// of a row if true, those of a column if false.
template <bool alongRows>
CLEAVE_DEVICE void multiplyRows(const GroupedArguments &x) {
  RowTile at(x, stagedRows);
  if (!at.isThere)
    return;
  int64_t column0 = blockIdx.x % x.columnTiles * stagedColumns;
  auto [m, begin, count, row0, isThere] = at;
  auto *rowAt =
      reinterpret_cast<int64_t *>(stagedMemory() + stageCount * stageBytes);
  for (int64_t i = threadIdx.x; i < stagedRows; i += blockDim.x)
    rowAt[i] = row0 + i < count ? x.tables.aAt[begin + row0 + i] : 0;
  __syncthreads();
  // Rows that choose no matrix get sums of no terms, that is, zeros.
  int64_t depth = m < x.e ? x.k : 0;
  auto left = stagedSide<false, stagedRows>(
      x.a, count, depth, [&, row0 = row0](int64_t row, int64_t k) {
        return rowAt[row - row0] + k;
      });
  auto right = stagedSide<alongRows, stagedColumns>(
      x.w, x.n, depth, [&, m = m](int64_t column, int64_t k) {
        return m * x.wMatrix + k * x.wRow + column * x.wCol;
      });
  WarpgroupSums sums;
  multiplyStages(left, right, row0, column0, sums);
  storeSums(
      sums, const_cast<void *>(x.c), x.isWide, row0, column0, count, x.n,
      [&, begin = begin](int64_t row) { return x.tables.cAt[begin + row]; });
}
} // namespace

extern "C" __global__ void __launch_bounds__(productThreads, 1)
    cleave_grouped_warpgroup(GroupedArguments x) {
  multiplyRows<true>(x);
}
extern "C" __global__ void __launch_bounds__(productThreads, 1)
    cleave_grouped_warpgroup_columns(GroupedArguments x) {
  multiplyRows<false>(x);
}

extern "C" __global__ void __launch_bounds__(productThreads, 1)
    cleave_grouped_outer_warpgroup(GroupedArguments x) {
  int64_t column0 = blockIdx.x % x.columnTiles * stagedColumns;
  int64_t rest = blockIdx.x / x.columnTiles;
  int64_t row0 = rest % x.rowTiles * stagedRows, m = rest / x.rowTiles;
  GroupedRows rows = rowsOf(x.tables, m);
  auto left = stagedSide<true, stagedRows>(
      x.a, x.k, rows.count, [&](int64_t row, int64_t depth) {
        return x.tables.aAt[rows.begin + depth] + row;
      });
  auto right = stagedSide<true, stagedColumns>(
      x.c, x.n, rows.count, [&](int64_t column, int64_t depth) {
        return x.tables.cAt[rows.begin + depth] + column;
      });
  WarpgroupSums sums;
  multiplyStages(left, right, row0, column0, sums);
  storeSums(sums, const_cast<void *>(x.w), x.isWide, row0, column0, x.k, x.n,
            [&](int64_t row) { return m * x.wMatrix + row * x.wRow; });
}

CLEAVE_KERNELS(grouped_warpgroup, CLEAVE_KERNEL(grouped_warpgroup),
               CLEAVE_KERNEL(grouped_warpgroup_columns),
               CLEAVE_KERNEL(grouped_outer_warpgroup))
