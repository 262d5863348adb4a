// Describes a product to cuBLASLt: finds leading dimensions and a batch
// dimension.

#include "blas_layout.h"

#include <algorithm>

using namespace cleave;
using namespace cleave::cuda;
using program::Gemm;

namespace {
// If a product would need more calls of cuBLASLt than this, our own kernel is
// used, because it is faster then.
constexpr int64_t mostCalls = 1024;

// A batch dimension: its size, and the strides of a, b and c.
struct Dim {
  int64_t size, a, b, c;
};

struct Strides {
  int64_t row, column;
};

struct Problem {
  int64_t m, n, k;
  Strides a, b, c;
  std::vector<Dim> batch;
};

// Returns a matrix [rows, columns] with these strides in cuBLASLt's form;
// nullopt if cuBLASLt cannot read it.
std::optional<StoredMatrix> store(int64_t rows, int64_t columns, Strides at) {
  StoredMatrix out;
  if (rows == 1 || at.row == 1) {
    out.rows = rows, out.columns = columns;
    out.leading = columns == 1 ? rows : at.column;
    if (out.leading >= rows)
      return out;
  }
  if (columns == 1 || at.column == 1) {
    out.isTransposed = true;
    out.rows = columns, out.columns = rows;
    out.leading = rows == 1 ? columns : at.row;
    if (out.leading >= columns)
      return out;
  }
  return std::nullopt;
}

// Drops dimensions of size 1, and merges dimensions that are contiguous in all
// operands.
void collapse(std::vector<Dim> &batch) {
  std::erase_if(batch, [](const Dim &dim) { return dim.size == 1; });
  for (size_t i = 0; i + 1 < batch.size();) {
    Dim &outer = batch[i], &inner = batch[i + 1];
    if (outer.a == inner.size * inner.a && outer.b == inner.size * inner.b &&
        outer.c == inner.size * inner.c) {
      inner.size *= outer.size;
      batch.erase(batch.begin() + i);
    } else {
      ++i;
    }
  }
}

// Folds batch dimensions into the matrices. If all matrices of the batch
// multiply the same B, their rows become rows of one larger A. If they share A,
// the columns of all B become columns of one larger B; a bias forbids this,
// because it has no entries for the added columns.
void fold(Problem &problem, bool hasBias) {
  while (!problem.batch.empty()) {
    const Dim &last = problem.batch.back();
    if (last.b == 0 && last.a == problem.m * problem.a.row &&
        last.c == problem.m * problem.c.row)
      problem.m *= last.size;
    else if (!hasBias && last.a == 0 &&
             last.b == problem.n * problem.b.column &&
             last.c == problem.n * problem.c.column)
      problem.n *= last.size;
    else
      return;
    problem.batch.pop_back();
  }
}
} // namespace

std::optional<BlasLayout> cuda::layoutOf(const Gemm &gemm) {
  Problem problem{gemm.m,
                  gemm.n,
                  gemm.k,
                  {gemm.a.rowStride, gemm.a.colStride},
                  {gemm.b.rowStride, gemm.b.colStride},
                  {gemm.c.rowStride, gemm.c.colStride},
                  {}};
  for (size_t i = 0; i < gemm.batch.size(); ++i)
    problem.batch.push_back({gemm.batch[i], gemm.a.batchStrides[i],
                             gemm.b.batchStrides[i], gemm.c.batchStrides[i]});
  collapse(problem.batch);
  fold(problem, gemm.bias.present());

  BlasLayout out;
  auto [m, n, k, a, b, c, batch] = problem;
  auto turned = [](Strides at) { return Strides{at.column, at.row}; };
  std::optional<StoredMatrix> first, second, result;
  result = store(n, m, turned(c));
  out.isSwapped = result && !result->isTransposed;
  if (out.isSwapped) {
    first = store(n, k, turned(b));
    second = store(k, m, turned(a));
  } else {
    result = store(m, n, c);
    first = store(m, k, a);
    second = store(k, n, b);
  }
  if (!first || !second || !result || result->isTransposed)
    return std::nullopt;
  out.first = *first, out.second = *second, out.result = *result;

  // The largest batch dimension becomes cuBLASLt's batch. The other batch
  // dimensions become separate calls.
  auto largest = std::max_element(
      batch.begin(), batch.end(),
      [](const Dim &x, const Dim &y) { return x.size < y.size; });
  if (largest != batch.end()) {
    out.batch = largest->size;
    out.first.stride = out.isSwapped ? largest->b : largest->a;
    out.second.stride = out.isSwapped ? largest->a : largest->b;
    out.result.stride = largest->c;
    batch.erase(largest);
  }
  out.offsets = {{}};
  for (const Dim &dim : batch) {
    if (int64_t(out.offsets.size()) * dim.size > mostCalls)
      return std::nullopt;
    std::vector<BlasLayout::Offsets> all;
    for (const BlasLayout::Offsets &at : out.offsets)
      for (int64_t i = 0; i < dim.size; ++i)
        all.push_back({at.a + i * dim.a, at.b + i * dim.b, at.c + i * dim.c});
    out.offsets = std::move(all);
  }
  return out;
}
