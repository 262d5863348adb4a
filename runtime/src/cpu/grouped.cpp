// Grouped matrix products. A table of row addresses is sorted (stably) by the
// matrix that each row chooses. If oneDNN supports the product, the rows are
// multiplied by oneDNN (grouped_onednn.cpp). Otherwise the loop in this file
// reads and writes the rows in place; its tasks are the tiles of the products.

#include "cpu/grouped.h"

#include "cleave/workspace.h"
#include "cpu/grouped_rows.h"
#include "cpu/micro.h"
#include "cpu/parallel.h"
#include "error.h"

using namespace cleave;
using program::DType;
using program::GroupedGemm;

namespace {
// Returns an upper bound for the number of tiles, whichever matrices the rows
// choose.
int64_t maxTasks(const GroupedGemm &x) {
  int64_t columns = divideUp(x.n, gemmTileColumns), rows = rowCount(x);
  if (x.outer)
    return x.e * divideUp(x.k, gemmTileRows) * columns;
  return (rows / gemmTileRows + std::min(x.e, rows)) * columns;
}

template <class T> int64_t scratchElements() {
  return roundUp(kernelsOf<T>(microKernels()).gemmScratch(), 64);
}

template <class T> int64_t workspaceBytes(const GroupedGemm &x, int threads) {
  int64_t used = std::min<int64_t>(threads, maxTasks(x));
  return tableBytes(x) + used * scratchElements<T>() * int64_t(sizeof(T));
}

// The matrix product of one matrix with all rows that choose it, and its number
// of tiles.
template <class S> struct Product {
  GemmProblem<S> gemm;
  int64_t rowTiles, columnTiles;
};

template <class S>
Product<S> productOf(const GroupedGemm &x, const GroupedBuffers &at,
                     const Tables &tables, int64_t matrix) {
  int64_t begin = matrix ? tables.rowEnd[matrix - 1] : 0;
  int64_t count = tables.rowEnd[matrix] - begin;
  using T = Compute<S>;
  S *a = static_cast<S *>(at.a), *c = static_cast<S *>(at.c);
  S *w = static_cast<S *>(at.w) + matrix * x.w.batchStrides[0];
  GemmProblem<S> p{};
  p.alpha = T(1);
  if (x.wideResult)
    p.wideC = x.outer ? static_cast<T *>(at.w) + matrix * x.w.batchStrides[0]
                      : static_cast<T *>(at.c);
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

template <class S>
std::function<void()> make(const GroupedGemm &x, const GroupedBuffers &at,
                           int threads) {
  using T = Compute<S>;
  Tables tables(x, static_cast<int64_t *>(at.workspace));
  T *scratch =
      reinterpret_cast<T *>(static_cast<char *>(at.workspace) + tableBytes(x));
  const MicroKernels<S> &kernels = kernelsOf<S>(microKernels());
  int64_t perThread = scratchElements<T>();
  auto multiply = [=, &kernels](int64_t begin, int64_t end, int thread) {
    int64_t matrix = 0;
    for (int64_t task = begin; task < end; ++task) {
      while (task >= tables.taskEnd[matrix])
        ++matrix;
      Product<S> product = productOf<S>(x, at, tables, matrix);
      int64_t tile = task - (matrix ? tables.taskEnd[matrix - 1] : 0);
      int64_t row = tile / product.columnTiles * gemmTileRows;
      int64_t column = tile % product.columnTiles * gemmTileColumns;
      kernels.gemmTile(product.gemm, row,
                       std::min(row + gemmTileRows, product.gemm.m), column,
                       std::min(column + gemmTileColumns, product.gemm.n),
                       scratch + thread * perThread);
    }
  };
  return [=] {
    sortRows(x, at.ids, tables);
    int64_t tasks = 0;
    for (int64_t m = 0; m < x.e; ++m) {
      Product<S> product = productOf<S>(x, at, tables, m);
      tables.taskEnd[m] = tasks += product.rowTiles * product.columnTiles;
    }
    parallelFor(tasks, 1, threads, multiply);
    if (!x.outer && (x.wideResult || sizeof(S) == sizeof(T)))
      clearRows(x, tables, static_cast<T *>(at.c), threads);
    else if (!x.outer)
      clearRows(x, tables, static_cast<uint16_t *>(at.c), threads);
  };
}

// Returns the reason why the product is invalid; "" if it is valid.
std::string check(const GroupedGemm &x) {
  constexpr int64_t limit = int64_t(1) << 31;
  if (x.dtype != DType::F32 && x.dtype != DType::F64 && x.dtype != DType::BF16)
    return std::string("grouped_gemm in ") + nameOf(x.dtype) +
           " is not supported; use f32, f64 or bf16";
  if (x.wideResult && x.dtype != DType::BF16)
    return std::string("grouped_gemm in ") + nameOf(x.dtype) +
           " whose result is to be f32: only that of bf16 is wider";
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
  if (fitsOneDnn(grouped))
    return oneDnnGroupedWorkspace(grouped);
  return grouped.dtype == DType::F64 ? workspaceBytes<double>(grouped, threads)
                                     : workspaceBytes<float>(grouped, threads);
}

std::function<void()> cleave::makeGrouped(const GroupedGemm &grouped,
                                          const GroupedBuffers &buffers,
                                          int threads) {
  std::string error = check(grouped);
  if (!error.empty())
    fail(CLEAVE_UNSUPPORTED, error);
  if (fitsOneDnn(grouped))
    return makeOneDnnGrouped(grouped, buffers, threads);
  if (grouped.dtype == DType::BF16)
    return make<Bf16>(grouped, buffers, threads);
  return grouped.dtype == DType::F32 ? make<float>(grouped, buffers, threads)
                                     : make<double>(grouped, buffers, threads);
}
