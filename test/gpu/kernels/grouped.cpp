// Checks grouped matrix products, in which each row is multiplied by the matrix
// that it chooses, and the products for the gradients of the matrices, which
// sum outer products for each matrix.

#include "harness.h"

#include "cleave/workspace.h"
#include "error.h"

using namespace cleave;
using namespace cleave::gpu;
using program::GroupedGemm;
using program::RowsRef;

namespace {
struct Operands {
  Array a, c, w, ids;
};

// Returns c[r] = a[r] w[ids[r]], or zeros if row r chooses no matrix.
std::vector<Expected> rowsOf(const GroupedGemm &x, const Operands &in) {
  std::vector<Expected> out(in.c.size());
  forAll(x.rows, [&](const std::vector<int64_t> &index) {
    int64_t aAt = dot(index, x.a.strides), cAt = dot(index, x.c.strides);
    auto id = int64_t(in.ids.at(dot(index, x.ids.strides)));
    for (int64_t j = 0; j < x.n; ++j) {
      Expected &sum = out[cAt + j * x.c.column];
      sum.isWritten = true;
      for (int64_t l = 0; id >= 0 && id < x.e && l < x.k; ++l) {
        double product = in.a.at(aAt + l * x.a.column) *
                         in.w.at(id * x.w.batchStrides[0] + l * x.w.rowStride +
                                 j * x.w.colStride);
        sum.add(product, std::abs(product));
      }
    }
  });
  return out;
}

// Returns w[m], the sum of a[r]^T c[r] over the rows r that choose matrix m.
std::vector<Expected> matricesOf(const GroupedGemm &x, const Operands &in) {
  std::vector<Expected> out(in.w.size());
  auto at = [&](int64_t id, int64_t l, int64_t j) -> Expected & {
    return out[id * x.w.batchStrides[0] + l * x.w.rowStride +
               j * x.w.colStride];
  };
  for (int64_t id = 0; id < x.e; ++id)
    for (int64_t l = 0; l < x.k; ++l)
      for (int64_t j = 0; j < x.n; ++j)
        at(id, l, j).isWritten = true;
  forAll(x.rows, [&](const std::vector<int64_t> &index) {
    int64_t aAt = dot(index, x.a.strides), cAt = dot(index, x.c.strides);
    auto id = int64_t(in.ids.at(dot(index, x.ids.strides)));
    if (id < 0 || id >= x.e)
      return;
    for (int64_t l = 0; l < x.k; ++l) {
      double left = in.a.at(aAt + l * x.a.column);
      for (int64_t j = 0; j < x.n; ++j) {
        double product = left * in.c.at(cAt + j * x.c.column);
        at(id, l, j).add(product, std::abs(product));
      }
    }
  });
  return out;
}

// Which kernels the random layout and sizes of the operands are made for.
// Anyhow: they are arbitrary. MatrixUnits: operands are dense and widths are
// multiples of 8, so that the kernels on matrix units can be used. Warpgroups:
// the sizes are also large enough for the kernels with warpgroup instructions,
// on devices with these instructions.
enum class Fit { Anyhow, MatrixUnits, Warpgroups };

// A grouped product of random sizes and operands.
class GroupedCheck {
public:
  GroupedCheck(Case &one, DType type, bool isOuter, Fit fit)
      : one(one), onMatrixUnits(fit != Fit::Anyhow) {
    x.dtype = type, x.outer = isOuter;
    drawSizes(fit);
    placeOperands();
    fillRows();
    if (!isOuter)
      in.w.randomize(one);
  }

  void run();

private:
  void drawSizes(Fit fit);
  Array placeRows(RowsRef &ref, int64_t width, DType of);
  void placeOperands();
  void fillRows();

  Case &one;
  const bool onMatrixUnits;
  GroupedGemm x;
  bool isTurned = false;    // the matrices are column-major
  int64_t dropped = 0;      // one in so many rows chooses no matrix; 0: none
  bool isOneChosen = false; // all rows choose the same matrix
  Operands in;
};

void GroupedCheck::drawSizes(Fit fit) {
  x.wideResult = x.dtype == DType::BF16 && one.one(2);
  int64_t mostRows = one.isSmall ? 100 : 700, most = one.isSmall ? 40 : 200;
  if (one.one(2))
    x.rows = {one.length(mostRows)};
  else
    x.rows = {one.length(mostRows / 4), one.between(1, 4)};
  x.e = one.one(2) ? one.between(1, 8) : one.between(1, 64);
  x.k = one.length(most), x.n = one.length(most);
  if (onMatrixUnits)
    x.k = (x.k + 7) / 8 * 8, x.n = (x.n + 7) / 8 * 8;
  if (fit == Fit::Warpgroups)
    x.n += 256, x.k += x.outer ? 128 : 0;
  isTurned = onMatrixUnits && one.one(2);
  dropped = one.one(2) ? one.between(1, 6) : 0;
  isOneChosen = one.one(6);
  one.say("rows", x.rows), one.say("matrices", x.e);
  one.say("k", x.k), one.say("n", x.n), one.say("wide", x.wideResult);
  one.say("turned", isTurned), one.say("dropped", dropped);
  one.say("one chosen", isOneChosen);
}

Array GroupedCheck::placeRows(RowsRef &ref, int64_t width, DType of) {
  int64_t count = 0;
  std::vector<int64_t> dims = x.rows;
  dims.push_back(width);
  std::vector<int64_t> strides = onMatrixUnits
                                     ? denseStrides(dims, count)
                                     : randomStrides(one, dims, count);
  ref.column = strides.back();
  strides.pop_back();
  ref.strides = strides;
  return Array(of, count);
}

void GroupedCheck::placeOperands() {
  in.a = placeRows(x.a, x.k, x.dtype);
  in.c = placeRows(x.c, x.n, x.outer ? x.dtype : x.resultType());
  in.ids = placeRows(x.ids, 1, DType::I64);
  int64_t count = 0;
  std::vector<int64_t> w = randomStrides(one, {x.e, x.k, x.n}, count);
  if (onMatrixUnits && !isTurned)
    w = denseStrides({x.e, x.k, x.n}, count);
  if (isTurned) {
    w = denseStrides({x.e, x.n, x.k}, count);
    std::swap(w[1], w[2]);
  }
  x.w.batchStrides = {w[0]}, x.w.rowStride = w[1], x.w.colStride = w[2];
  in.w = Array(x.outer ? x.resultType() : x.dtype, count);
}

void GroupedCheck::fillRows() {
  // Operand rows that choose no matrix stay NaN, so that a kernel that reads
  // them gives wrong results.
  int64_t only = one.below(x.e);
  std::normal_distribution<double> normal;
  forAll(x.rows, [&](const std::vector<int64_t> &index) {
    int64_t id = isOneChosen ? only : one.below(x.e);
    bool isDropped = dropped && one.one(dropped);
    if (isDropped)
      id = one.one(2) ? -1 - one.below(5) : x.e + one.below(5);
    in.ids.set(dot(index, x.ids.strides), double(id));
    for (int64_t i = 0; !isDropped && i < x.k; ++i)
      in.a.set(dot(index, x.a.strides) + i * x.a.column, normal(one.engine));
    for (int64_t i = 0; x.outer && !isDropped && i < x.n; ++i)
      in.c.set(dot(index, x.c.strides) + i * x.c.column, normal(one.engine));
  });
}

void GroupedCheck::run() {
  GroupedBuffers at;
  at.a = in.a.upload(one.stream), at.c = in.c.upload(one.stream);
  at.w = in.w.upload(one.stream);
  at.ids = reinterpret_cast<int64_t *>(in.ids.upload(one.stream));
  std::string error;
  int64_t bytes = cuda::groupedWorkspace(x, error);
  if (bytes < 0)
    fail(CLEAVE_INTERNAL, error);
  cuda::DeviceMemory workspace(bytes, "workspace");
  at.workspace = workspace.data();
  one.run(cuda::makeGrouped(one.kernels, x, at));
  Array &result = x.outer ? in.w : in.c;
  result.download(one.stream);
  one.compare(x.outer ? "w" : "c", result,
              x.outer ? matricesOf(x, in) : rowsOf(x, in),
              limitOf(x.resultType()));
}

template <DType type, bool isOuter, Fit fit> void check(Case &one) {
  GroupedCheck(one, type, isOuter, fit).run();
}

template <DType type, Fit fit>
void add(std::vector<Family> &to, const std::string &name, int64_t small = 12) {
  to.push_back({"grouped, " + name, check<type, false, fit>, 32, small});
  to.push_back({"grouped outer, " + name, check<type, true, fit>, 32, small});
}
} // namespace

void gpu::addGroupedFamilies(std::vector<Family> &to) {
  add<DType::F32, Fit::Anyhow>(to, "f32");
  add<DType::F64, Fit::Anyhow>(to, "f64");
  add<DType::BF16, Fit::Anyhow>(to, "bf16, any strides");
  add<DType::BF16, Fit::MatrixUnits>(to, "bf16, matrix units");
  add<DType::BF16, Fit::Warpgroups>(to, "bf16, wide", 4);
}
