// Rows are sorted by the matrix that they choose, in order, as a table of where
// they lie: the product of a matrix reads and writes its rows in place. Tiles
// of the products are the tasks, and a tile is computed by one thread, so
// results do not depend on the number of threads.

#include "cpu/grouped.h"

#include "cleave/workspace.h"
#include "cpu/micro.h"
#include "cpu/parallel.h"
#include "error.h"

#include <algorithm>
#include <array>
#include <utility>

using namespace cleave;
using program::DType;
using program::GroupedGemm;

namespace {
constexpr size_t maxRowDims = 8;

int64_t divideUp(int64_t x, int64_t by) { return (x + by - 1) / by; }
int64_t roundUp(int64_t x, int64_t to) { return divideUp(x, to) * to; }

int64_t rowCount(const GroupedGemm &x) {
  int64_t count = 1;
  for (int64_t size : x.rows)
    count *= size;
  return count;
}

// Most tiles that there can be, whatever rows choose.
int64_t maxTasks(const GroupedGemm &x) {
  int64_t columns = divideUp(x.n, gemmTileColumns), rows = rowCount(x);
  if (x.outer)
    return x.e * divideUp(x.k, gemmTileRows) * columns;
  return (rows / gemmTileRows + std::min(x.e, rows)) * columns;
}

// Tables at the start of the workspace, of 64-bit numbers.
struct Tables {
  int64_t *rowEnd;    // [e + 1]: rows of matrix m end here; last those of none
  int64_t *taskEnd;   // [e]
  int64_t *aAt, *cAt; // [rows]: where sorted rows begin

  Tables(const GroupedGemm &x, int64_t *at)
      : rowEnd(at), taskEnd(rowEnd + x.e + 1), aAt(taskEnd + x.e),
        cAt(aAt + rowCount(x)) {}
};

int64_t tableBytes(const GroupedGemm &x) {
  int64_t numbers = 2 * x.e + 1 + 2 * rowCount(x);
  return roundUp(numbers * int64_t(sizeof(int64_t)), 64);
}

template <class T> int64_t scratchElements() {
  return roundUp(kernelsOf<T>(microKernels()).gemmScratch(), 64);
}

template <class T> int64_t workspaceBytes(const GroupedGemm &x, int threads) {
  int64_t used = std::min<int64_t>(threads, maxTasks(x));
  return tableBytes(x) + used * scratchElements<T>() * int64_t(sizeof(T));
}

// Calls visit(a, c, id) for every row in order: where it begins.
template <class Visit> void forEachRow(const GroupedGemm &x, Visit visit) {
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

void sortRows(const GroupedGemm &x, const int64_t *ids, const Tables &tables) {
  auto chosen = [&](int64_t id) {
    return ids[id] >= 0 && ids[id] < x.e ? ids[id] : x.e;
  };
  std::fill_n(tables.rowEnd, x.e + 1, 0);
  forEachRow(
      x, [&](int64_t, int64_t, int64_t id) { ++tables.rowEnd[chosen(id)]; });
  int64_t begin = 0;
  for (int64_t m = 0; m <= x.e; ++m)
    begin += std::exchange(tables.rowEnd[m], begin);
  // Beginnings move to the ends as rows take their places.
  forEachRow(x, [&](int64_t a, int64_t c, int64_t id) {
    int64_t at = tables.rowEnd[chosen(id)]++;
    tables.aAt[at] = a;
    tables.cAt[at] = c;
  });
}

// One product: that of a matrix with its rows.
template <class T> struct Product {
  GemmProblem<T> gemm;
  int64_t rowTiles, columnTiles;
};

template <class T>
Product<T> productOf(const GroupedGemm &x, const GroupedBuffers &at,
                     const Tables &tables, int64_t matrix) {
  int64_t begin = matrix ? tables.rowEnd[matrix - 1] : 0;
  int64_t count = tables.rowEnd[matrix] - begin;
  T *a = static_cast<T *>(at.a), *c = static_cast<T *>(at.c);
  T *w = static_cast<T *>(at.w) + matrix * x.w.batchStrides[0];
  GemmProblem<T> p{};
  p.alpha = T(1);
  p.n = x.n;
  p.a = a;
  if (x.outer) {
    p.m = x.k, p.k = count;
    p.aRow = x.a.column, p.aColAt = tables.aAt + begin;
    p.b = c, p.bRowAt = tables.cAt + begin, p.bCol = x.c.column;
    p.c = w, p.cRow = x.w.rowStride, p.cCol = x.w.colStride;
  } else {
    p.m = count, p.k = x.k;
    p.aRowAt = tables.aAt + begin, p.aCol = x.a.column;
    p.b = w, p.bRow = x.w.rowStride, p.bCol = x.w.colStride;
    p.c = c, p.cRowAt = tables.cAt + begin, p.cCol = x.c.column;
  }
  return {p, divideUp(p.m, gemmTileRows), divideUp(p.n, gemmTileColumns)};
}

template <class T>
std::function<void()> make(const GroupedGemm &x, const GroupedBuffers &at,
                           int threads) {
  Tables tables(x, static_cast<int64_t *>(at.workspace));
  T *scratch =
      reinterpret_cast<T *>(static_cast<char *>(at.workspace) + tableBytes(x));
  const MicroKernels<T> &kernels = kernelsOf<T>(microKernels());
  int64_t perThread = scratchElements<T>();
  auto multiply = [=, &kernels](int64_t begin, int64_t end, int thread) {
    int64_t matrix = 0;
    for (int64_t task = begin; task < end; ++task) {
      while (task >= tables.taskEnd[matrix])
        ++matrix;
      Product<T> product = productOf<T>(x, at, tables, matrix);
      int64_t tile = task - (matrix ? tables.taskEnd[matrix - 1] : 0);
      int64_t row = tile / product.columnTiles * gemmTileRows;
      int64_t column = tile % product.columnTiles * gemmTileColumns;
      kernels.gemmTile(product.gemm, row,
                       std::min(row + gemmTileRows, product.gemm.m), column,
                       std::min(column + gemmTileColumns, product.gemm.n),
                       scratch + thread * perThread);
    }
  };
  // Rows that choose none.
  auto clear = [=](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row)
      for (int64_t j = 0; j < x.n; ++j)
        static_cast<T *>(at.c)[tables.cAt[row] + j * x.c.column] = T(0);
  };
  return [=] {
    sortRows(x, at.ids, tables);
    int64_t tasks = 0;
    for (int64_t m = 0; m < x.e; ++m) {
      Product<T> product = productOf<T>(x, at, tables, m);
      tables.taskEnd[m] = tasks += product.rowTiles * product.columnTiles;
    }
    parallelFor(tasks, 1, threads, multiply);
    if (x.outer)
      return;
    int64_t first = tables.rowEnd[x.e - 1];
    parallelFor(tables.rowEnd[x.e] - first,
                std::max<int64_t>(1, 16384 / std::max<int64_t>(x.n, 1)),
                threads, [&](int64_t begin, int64_t end, int thread) {
                  clear(first + begin, first + end, thread);
                });
  };
}

// Empty if the product is well-formed.
std::string check(const GroupedGemm &x) {
  constexpr int64_t limit = int64_t(1) << 31;
  if (x.dtype != DType::F32 && x.dtype != DType::F64)
    return std::string("grouped_gemm in ") + nameOf(x.dtype) +
           " is not yet supported; use f32 or f64";
  if (x.rows.size() > maxRowDims)
    return "grouped_gemm with rows of " + std::to_string(x.rows.size()) +
           " dimensions, expected at most " + std::to_string(maxRowDims);
  if (x.a.strides.size() != x.rows.size() ||
      x.c.strides.size() != x.rows.size() ||
      x.ids.strides.size() != x.rows.size() || x.w.batchStrides.size() != 1)
    return "grouped_gemm whose strides do not fit its " +
           std::to_string(x.rows.size()) + " dimensions of rows";
  for (int64_t size : {x.e, x.k, x.n})
    if (size < 1 || size > limit)
      return "grouped_gemm of size " + std::to_string(size);
  __int128 rows = 1;
  for (int64_t size : x.rows)
    if (rows *= size; size < 0 || rows > limit)
      return "grouped_gemm with " + std::to_string(size) + " rows";
  if (__int128(x.e) * x.k > limit || __int128(x.e) * x.n > limit)
    return "grouped_gemm with " + std::to_string(x.e) + " matrices of " +
           std::to_string(x.k) + "x" + std::to_string(x.n);
  return "";
}
} // namespace

int64_t cleave::groupedWorkspace(const GroupedGemm &grouped, int threads,
                                 std::string &error) {
  error = check(grouped);
  if (!error.empty())
    return -1;
  return grouped.dtype == DType::F32 ? workspaceBytes<float>(grouped, threads)
                                     : workspaceBytes<double>(grouped, threads);
}

std::function<void()> cleave::makeGrouped(const GroupedGemm &grouped,
                                          const GroupedBuffers &buffers,
                                          int threads) {
  std::string error = check(grouped);
  if (!error.empty())
    fail(CLEAVE_UNSUPPORTED, error);
  return grouped.dtype == DType::F32 ? make<float>(grouped, buffers, threads)
                                     : make<double>(grouped, buffers, threads);
}
