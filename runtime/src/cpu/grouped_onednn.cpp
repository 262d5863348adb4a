// Grouped matrix products by oneDNN. The rows that are multiplied with the same
// matrix are gathered in chunks, unless they are evenly spaced already, and
// each chunk is multiplied as one matrix.

#include "cpu/grouped_rows.h"
#include "error.h"

#include <cstring>
#include <dnnl.hpp>

using namespace cleave;
using program::GroupedGemm;
using program::RowsRef;

namespace {
// The largest number of rows that are gathered at a time. It suffices for peak
// speed, and the workspace has room for that many rows.
constexpr int64_t chunkRows = 2048;

int64_t chunkOf(const GroupedGemm &x) {
  return std::min(rowCount(x), chunkRows);
}

// A matrix operand of dnnl_sgemm: row-major or transposed.
struct Operand {
  float *at;
  int64_t stride;
  bool transposed = false;
};

void multiply(Operand a, Operand b, int64_t m, int64_t n, int64_t k, float beta,
              Operand c) {
  // A transposed C is computed as c^T = b^T a^T.
  if (c.transposed) {
    a.transposed = !a.transposed, b.transposed = !b.transposed;
    c.transposed = false;
    return multiply(b, a, n, m, k, beta, c);
  }
  dnnl_status_t status =
      dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', m, n, k,
                 1.0f, a.at, a.stride, b.at, b.stride, beta, c.at, c.stride);
  if (status != dnnl_success)
    fail(CLEAVE_RANK_FAILED,
         "oneDNN's sgemm failed with status " + std::to_string(status));
}

struct Rows {
  const int64_t *at; // the offset of each row, in elements
  int64_t count, size;

  // Returns the distance between rows; 0 if the rows are not evenly spaced.
  int64_t stride() const {
    int64_t stride = count > 1 ? at[1] - at[0] : size;
    for (int64_t row = 2; row < count; ++row)
      if (at[row] - at[row - 1] != stride)
        return 0;
    return stride >= size ? stride : 0;
  }
};

// Calls visit(row) for every row, in parallel: each thread visits a contiguous
// range of rows.
template <class Visit>
void forRows(const Rows &rows, int threads, Visit visit) {
  auto piece = [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row)
      visit(row);
  };
  parallelFor(rows.count, std::max<int64_t>(1, 16384 / rows.size), threads,
              piece);
}

Operand together(const Rows &rows, float *data, float *scratch, int threads) {
  if (int64_t stride = rows.stride())
    return {data + rows.at[0], stride};
  forRows(rows, threads, [&](int64_t row) {
    std::memcpy(scratch + row * rows.size, data + rows.at[row],
                rows.size * sizeof(float));
  });
  return {scratch, rows.size};
}

// isRowMajor(): the elements of a row of the matrix are contiguous, and rows do
// not overlap; there may be gaps between rows. isColMajor(): the same for
// columns.
bool isRowMajor(const GroupedGemm &x) {
  return x.w.colStride == 1 && x.w.rowStride >= x.n;
}
bool isColMajor(const GroupedGemm &x) {
  return x.w.rowStride == 1 && x.w.colStride >= x.k;
}

Operand matrixOf(const GroupedGemm &x, float *w, int64_t matrix) {
  float *at = w + matrix * x.w.batchStrides[0];
  bool transposed = !isRowMajor(x);
  return {at, transposed ? x.w.colStride : x.w.rowStride, transposed};
}

void clearMatrix(const GroupedGemm &x, const Operand &w, int threads) {
  int64_t rows = w.transposed ? x.n : x.k, size = w.transposed ? x.k : x.n;
  forRows({nullptr, rows, size}, threads,
          [&](int64_t row) { std::fill_n(w.at + row * w.stride, size, 0.0f); });
}
} // namespace

bool cleave::fitsOneDnn(const GroupedGemm &x) {
  return x.dtype == program::DType::F32 && x.a.column == 1 && x.c.column == 1 &&
         (isRowMajor(x) || isColMajor(x));
}

int64_t cleave::oneDnnGroupedWorkspace(const GroupedGemm &x) {
  return tableBytes(x) +
         roundUp(chunkOf(x) * (x.k + x.n) * int64_t(sizeof(float)), 64);
}

std::function<void()> cleave::makeOneDnnGrouped(const GroupedGemm &x,
                                                const GroupedBuffers &at,
                                                int threads) {
  Tables tables(x, static_cast<int64_t *>(at.workspace));
  auto *aRows = reinterpret_cast<float *>(static_cast<char *>(at.workspace) +
                                          tableBytes(x));
  float *cRows = aRows + chunkOf(x) * x.k;
  auto *a = static_cast<float *>(at.a), *c = static_cast<float *>(at.c),
       *w = static_cast<float *>(at.w);

  auto rowsTimesMatrix = [=](int64_t matrix, int64_t begin, int64_t count) {
    Rows to = {tables.cAt + begin, count, x.n};
    Operand left =
        together({tables.aAt + begin, count, x.k}, a, aRows, threads);
    int64_t stride = to.stride();
    Operand result =
        stride ? Operand{c + to.at[0], stride} : Operand{cRows, x.n};
    multiply(left, matrixOf(x, w, matrix), count, x.n, x.k, 0.0f, result);
    if (!stride)
      forRows(to, threads, [&](int64_t row) {
        std::memcpy(c + to.at[row], cRows + row * x.n, x.n * sizeof(float));
      });
  };
  auto rowsTimesRows = [=](int64_t matrix, int64_t begin, int64_t count,
                           bool isFirst) {
    Operand left =
        together({tables.aAt + begin, count, x.k}, a, aRows, threads);
    Operand right =
        together({tables.cAt + begin, count, x.n}, c, cRows, threads);
    left.transposed = true;
    multiply(left, right, x.k, x.n, count, isFirst ? 0.0f : 1.0f,
             matrixOf(x, w, matrix));
  };
  return [=] {
    sortRows(x, at.ids, tables);
    for (int64_t matrix = 0, begin = 0; matrix < x.e; ++matrix) {
      int64_t end = tables.rowEnd[matrix];
      if (x.outer && begin == end)
        clearMatrix(x, matrixOf(x, w, matrix), threads);
      // The chunks have almost equal sizes, so that none is small.
      int64_t chunks = divideUp(end - begin, chunkRows);
      int64_t size = chunks ? divideUp(end - begin, chunks) : 0;
      for (int64_t row = begin; row < end; row += size) {
        int64_t count = std::min(size, end - row);
        if (x.outer)
          rowsTimesRows(matrix, row, count, row == begin);
        else
          rowsTimesMatrix(matrix, row, count);
      }
      begin = end;
    }
    if (!x.outer)
      clearRows(x, tables, c, threads);
  };
}
