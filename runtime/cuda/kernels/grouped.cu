// Grouped matrix products: each row is multiplied with the matrix that its id
// selects. The ids stay on the device: one block sorts the rows by matrix and
// writes GroupTables. The product is launched with the largest possible number
// of blocks, and each block finds its tile in these tables.

#include "group_tiles.h"
#include "product.h"
#include "ranking.h"

using namespace cleave::cuda;
using namespace cleave::cuda::device;

extern "C" __global__ void __launch_bounds__(1024)
    cleave_group_rows(GroupRowsArguments x) {
  // Returns the offset of a row in an array with these strides.
  auto placeOf = [&](int64_t row, const int64_t *strides) {
    auto rest = uint32_t(row);
    int64_t at = 0;
    for (int i = 0; i < x.dims; ++i) {
      uint32_t next = divide(rest, x.divider[i]);
      at += (rest - int64_t(next) * x.size[i]) * strides[i];
      rest = next;
    }
    return at;
  };
  auto chosen = [&](int64_t row) {
    int64_t id = x.ids[placeOf(row, x.idStride)];
    return id >= 0 && id < x.e ? id : x.e;
  };
  RankingTables tables = rankingTables(sharedMemory(), x.e + 1);
  rankRows(tables, x.rows, x.e + 1, true, chosen,
           [&](int64_t row, int64_t, int64_t place) {
             x.tables.aAt[place] = placeOf(row, x.aStride);
             x.tables.cAt[place] = placeOf(row, x.cStride);
           });
  __syncthreads();
  for (int64_t m = threadIdx.x; m <= x.e; m += blockDim.x) {
    int64_t end = m < x.e ? tables.totals[m + 1] : x.rows;
    x.tables.rowEnd[m] = end;
    tables.counts[m] =
        uint32_t((end - tables.totals[m] + x.tileRows - 1) / x.tileRows);
  }
  __syncthreads();
  // Until here, totals[m] is the position of the first row of matrix m. These
  // positions are not needed any more, so the array is reused: from here on
  // totals[m] is the number of tiles of all matrices before m.
  for (int64_t m = threadIdx.x; m <= x.e; m += blockDim.x)
    tables.totals[m] = tables.counts[m];
  __syncthreads();
  sumBefore(tables.totals, x.e + 1);
  for (int64_t m = threadIdx.x; m <= x.e; m += blockDim.x)
    x.tables.tileEnd[m] = tables.totals[m] + tables.counts[m];
}

namespace {
template <class T> CLEAVE_DEVICE void multiplyRows(const GroupedArguments &x) {
  RowTile at(x, productRows);
  if (!at.isThere)
    return;
  int64_t column0 = blockIdx.x % x.columnTiles * productColumns;
  auto [m, begin, count, row0, isThere] = at;
  bool isNarrow = x.isBf16 && !x.isWide;
  T sums[productSide][productSide] = {};
  if (m < x.e) {
    __shared__ int64_t rowAt[productRows];
    for (int64_t i = threadIdx.x; i < productRows; i += blockDim.x)
      rowAt[i] = row0 + i < count ? x.tables.aAt[begin + row0 + i] : 0;
    __syncthreads();
    auto left = sideOf<T>(x.a, x.isBf16, x.aCol == 1, count, x.k,
                          [&](int64_t row, int64_t depth) {
                            return rowAt[row - row0] + depth * x.aCol;
                          });
    auto right =
        sideOf<T>(x.w, x.isBf16, x.wRow == 1, x.n, x.k,
                  [&](int64_t column, int64_t depth) {
                    return m * x.wMatrix + depth * x.wRow + column * x.wCol;
                  });
    multiplyTile<T>(left, right, row0, column0, sums);
  }
  forElements<T>(
      sums, row0, column0, count, x.n, [&](int64_t row, int64_t column, T sum) {
        storeAs<T>(const_cast<void *>(x.c),
                   x.tables.cAt[begin + row] + column * x.cCol, sum, isNarrow);
      });
}

template <class T> CLEAVE_DEVICE void multiplyOuter(const GroupedArguments &x) {
  int64_t column0 = blockIdx.x % x.columnTiles * productColumns;
  int64_t rest = blockIdx.x / x.columnTiles;
  int64_t row0 = rest % x.rowTiles * productRows, m = rest / x.rowTiles;
  auto [begin, count] = rowsOf(x.tables, m);
  auto left = sideOf<T>(x.a, x.isBf16, false, x.k, count,
                        [&](int64_t row, int64_t depth) {
                          return x.tables.aAt[begin + depth] + row * x.aCol;
                        });
  auto right = sideOf<T>(x.c, x.isBf16, false, x.n, count,
                         [&](int64_t column, int64_t depth) {
                           return x.tables.cAt[begin + depth] + column * x.cCol;
                         });
  T sums[productSide][productSide];
  multiplyTile<T>(left, right, row0, column0, sums);
  forElements<T>(sums, row0, column0, x.k, x.n,
                 [&](int64_t row, int64_t column, T sum) {
                   storeAs<T>(const_cast<void *>(x.w),
                              m * x.wMatrix + row * x.wRow + column * x.wCol,
                              sum, x.isBf16 && !x.isWide);
                 });
}
} // namespace

#define CLEAVE_GROUPED(name, type)                                             \
  extern "C" __global__ void __launch_bounds__(productThreads)                 \
      cleave_grouped_##name(GroupedArguments x) {                              \
    multiplyRows<type>(x);                                                     \
  }                                                                            \
  extern "C" __global__ void __launch_bounds__(productThreads)                 \
      cleave_grouped_outer_##name(GroupedArguments x) {                        \
    multiplyOuter<type>(x);                                                    \
  }
CLEAVE_GROUPED(f32, float)
CLEAVE_GROUPED(f64, double)

CLEAVE_KERNELS(grouped, CLEAVE_KERNEL(group_rows), CLEAVE_KERNEL(grouped_f32),
               CLEAVE_KERNEL(grouped_f64), CLEAVE_KERNEL(grouped_outer_f32),
               CLEAVE_KERNEL(grouped_outer_f64))
