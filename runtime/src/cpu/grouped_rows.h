// The table of row addresses of a grouped product, sorted by the matrix that
// each row chooses.
#ifndef CLEAVE_RUNTIME_CPU_GROUPED_ROWS_H
#define CLEAVE_RUNTIME_CPU_GROUPED_ROWS_H

#include "cpu/grouped.h"
#include "cpu/parallel.h"

#include <algorithm>
#include <array>
#include <utility>

namespace cleave {

inline constexpr size_t maxRowDims = 8;

inline int64_t divideUp(int64_t x, int64_t by) { return (x + by - 1) / by; }
inline int64_t roundUp(int64_t x, int64_t to) { return divideUp(x, to) * to; }

inline int64_t rowCount(const program::GroupedGemm &x) {
  int64_t count = 1;
  for (int64_t size : x.rows)
    count *= size;
  return count;
}

// The tables at the start of the workspace. All entries are 64-bit numbers.
struct Tables {
  int64_t *rowEnd;    // [e + 1]: end of each matrix's rows; last: no matrix
  int64_t *taskEnd;   // [e]: end of each matrix's tasks
  int64_t *aAt, *cAt; // [rows]: where sorted rows begin

  Tables(const program::GroupedGemm &x, int64_t *at)
      : rowEnd(at), taskEnd(rowEnd + x.e + 1), aAt(taskEnd + x.e),
        cAt(aAt + rowCount(x)) {}
};

inline int64_t tableBytes(const program::GroupedGemm &x) {
  int64_t numbers = 2 * x.e + 1 + 2 * rowCount(x);
  return roundUp(numbers * int64_t(sizeof(int64_t)), 64);
}

// Calls visit(a, c, id) for every row in order, with the offsets of the row in
// the arrays a and c and in the array of ids.
template <class Visit>
void forEachRow(const program::GroupedGemm &x, Visit visit) {
  std::array<int64_t, maxRowDims> index{};
  int64_t a = 0, c = 0, id = 0;
  for (int64_t row = 0, count = rowCount(x); row < count; ++row) {
    visit(a, c, id);
    for (size_t dim = x.rows.size(); dim-- > 0;) {
      a += x.a.strides[dim], c += x.c.strides[dim], id += x.ids.strides[dim];
      if (++index[dim] < x.rows[dim])
        break;
      index[dim] = 0;
      a -= x.rows[dim] * x.a.strides[dim];
      c -= x.rows[dim] * x.c.strides[dim];
      id -= x.rows[dim] * x.ids.strides[dim];
    }
  }
}

inline void sortRows(const program::GroupedGemm &x, const int64_t *ids,
                     const Tables &tables) {
  auto chosen = [&](int64_t id) {
    return ids[id] >= 0 && ids[id] < x.e ? ids[id] : x.e;
  };
  std::fill_n(tables.rowEnd, x.e + 1, 0);
  forEachRow(
      x, [&](int64_t, int64_t, int64_t id) { ++tables.rowEnd[chosen(id)]; });
  int64_t begin = 0;
  for (int64_t m = 0; m <= x.e; ++m)
    begin += std::exchange(tables.rowEnd[m], begin);
  // At first rowEnd[m] holds the beginning of the rows of matrix m. It advances
  // as these rows are entered, until it is their end.
  forEachRow(x, [&](int64_t a, int64_t c, int64_t id) {
    int64_t at = tables.rowEnd[chosen(id)]++;
    tables.aAt[at] = a;
    tables.cAt[at] = c;
  });
}

// Writes zeros to the rows of c that choose no matrix.
template <class T>
void clearRows(const program::GroupedGemm &x, const Tables &tables, T *c,
               int threads) {
  int64_t first = tables.rowEnd[x.e - 1];
  auto clear = [&](int64_t begin, int64_t end, int) {
    for (int64_t row = first + begin; row < first + end; ++row)
      for (int64_t j = 0; j < x.n; ++j)
        c[tables.cAt[row] + j * x.c.column] = T(0);
  };
  parallelFor(tables.rowEnd[x.e] - first,
              std::max<int64_t>(1, 16384 / std::max<int64_t>(x.n, 1)), threads,
              clear);
}

} // namespace cleave

#endif // CLEAVE_RUNTIME_CPU_GROUPED_ROWS_H
