// Finds the tile of a grouped product that a thread block computes.
#ifndef CLEAVE_RUNTIME_CUDA_KERNELS_GROUP_TILES_H
#define CLEAVE_RUNTIME_CUDA_KERNELS_GROUP_TILES_H

#include "device_code.h"

namespace cleave::cuda::device {

/// The rows that choose one matrix, as a range of the rows in sorted order.
struct GroupedRows {
  int64_t begin, count;
};
CLEAVE_DEVICE GroupedRows rowsOf(const GroupTables &tables, int64_t m) {
  int64_t begin = m ? tables.rowEnd[m - 1] : 0;
  return {begin, tables.rowEnd[m] - begin};
}

/// The tile of rows that a block computes. There may be fewer tiles than
/// blocks; then the last blocks have none (`isThere` is false).
struct RowTile {
  int64_t m, begin = 0, count = 0, row0 = 0;
  bool isThere;

  CLEAVE_DEVICE RowTile(const GroupedArguments &x, int64_t tileRows) {
    const int64_t *ends = x.tables.tileEnd;
    int64_t tile = blockIdx.x / x.columnTiles, low = 0, high = x.e + 1;
    while (low < high) { // first matrix whose tiles end after `tile`
      int64_t middle = (low + high) / 2;
      if (ends[middle] > tile)
        high = middle;
      else
        low = middle + 1;
    }
    m = low;
    isThere = m <= x.e;
    if (!isThere)
      return;
    GroupedRows rows = rowsOf(x.tables, m);
    begin = rows.begin, count = rows.count;
    row0 = (tile - (m ? ends[m - 1] : 0)) * tileRows;
  }
};

} // namespace cleave::cuda::device

#endif // CLEAVE_RUNTIME_CUDA_KERNELS_GROUP_TILES_H
