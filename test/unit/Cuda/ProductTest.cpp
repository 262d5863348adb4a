// Compares products on a device with those on the CPU.

#include "../TriesAll.h"
#include "Arrays.h"
#include "TinyDriver.h"
#include "cpu/gemm.h"
#include "cpu/grouped.h"

#include "cleave/workspace.h"

using namespace cleave;
using namespace cleave::program;
using namespace cleave::test;

namespace {
void expectGemm(std::mt19937 &engine, Gemm x) {
  int64_t size = 0;
  auto place = [&](MatrixRef &matrix, int64_t rows, int64_t columns,
                   bool isRead) {
    std::vector<int64_t> dims = x.batch;
    dims.insert(dims.end(), {rows, columns});
    std::vector<int64_t> strides = randomStrides(engine, dims, size);
    matrix.colStride = strides.back();
    matrix.rowStride = strides[strides.size() - 2];
    strides.resize(x.batch.size());
    for (int64_t &stride : strides)
      if (isRead && engine() % 4 == 0)
        stride = 0;
    matrix.batchStrides = strides;
    return Array(isRead ? x.dtype : x.resultType(), size);
  };
  Array a = place(x.a, x.m, x.k, true), b = place(x.b, x.k, x.n, true);
  Array c = place(x.c, x.m, x.n, false);
  a.fill(1), b.fill(2);
  if (x.accumulate)
    c.fill(3);
  Array bias(x.dtype, x.n), pre(x.resultType(), size);
  bias.fill(4);
  GemmBuffers at;
  at.a = a.data(), at.b = b.data(), at.c = c.data();
  if (x.bias.present())
    at.bias = bias.data();
  if (x.preActivation.present())
    at.preActivation = pre.data();
  Array gotC = c, gotPre = pre;
  std::vector<double> workspace(size_t(blockedGemmWorkspace(x, 1) / 8 + 1));
  at.workspace = workspace.data();
  makeBlockedGemm(x, at, 1)();
  at.c = gotC.data();
  if (x.preActivation.present())
    at.preActivation = gotPre.data();
  cuda::makePlainGemm(kernels(), x, at)(nullptr);
  std::string text = std::string(nameOf(x.dtype)) + " " + std::to_string(x.m) +
                     "x" + std::to_string(x.k) + "x" + std::to_string(x.n) +
                     ", activation " + std::to_string(int(x.activation));
  double tolerance = toleranceOf(x.dtype, x.wideResult);
  EXPECT_LE(difference(gotC, c), tolerance) << text;
  EXPECT_LE(difference(gotPre, pre), tolerance) << text;
}

struct GroupedCase {
  DType type;
  bool outer, isWide = false;
  std::vector<int64_t> rows;
  int64_t e, k, n;
  int64_t dropped = 0, only = -1;
  // Which dimension is contiguous: any, the rows of all operands, or the rows
  // of the activations and the columns of the matrices.
  enum { Anyhow, Rows, Columns } layout = Anyhow;
};

// A grouped product with random operands. The results of a row that chooses no
// matrix stay NaN.
class GroupedProduct {
public:
  GroupedProduct(std::mt19937 &engine, const GroupedCase &y)
      : engine(engine), y(y) {
    x.dtype = y.type, x.outer = y.outer, x.wideResult = y.isWide;
    x.rows = y.rows, x.e = y.e, x.k = y.k, x.n = y.n;
    placeOperands();
    fillRows();
    if (!x.outer)
      w.fill(9);
  }

  void expectSameAsOnCpu(const char *kernel);

private:
  Array placeRows(RowsRef &ref, int64_t width, DType type);
  std::vector<int64_t> matrixStrides(int64_t &size);
  void placeOperands();
  void fillRows();
  void computeOnCpu();

  std::mt19937 &engine;
  const GroupedCase &y;
  GroupedGemm x;
  Array a, c, w;
  std::vector<int64_t> ids;
};

Array GroupedProduct::placeRows(RowsRef &ref, int64_t width, DType type) {
  int64_t size = 0;
  std::vector<int64_t> dims = x.rows;
  dims.push_back(width);
  std::vector<int64_t> strides = y.layout == GroupedCase::Anyhow
                                     ? randomStrides(engine, dims, size)
                                     : denseStrides(dims, size);
  ref.column = strides.back();
  strides.pop_back();
  ref.strides = strides;
  return Array(type, size);
}

std::vector<int64_t> GroupedProduct::matrixStrides(int64_t &size) {
  std::vector<int64_t> strides = randomStrides(engine, {x.e, x.k, x.n}, size);
  if (y.layout == GroupedCase::Rows)
    strides = denseStrides({x.e, x.k, x.n}, size);
  if (y.layout == GroupedCase::Columns) {
    strides = denseStrides({x.e, x.n, x.k}, size);
    std::swap(strides[1], strides[2]);
  }
  return strides;
}

void GroupedProduct::placeOperands() {
  a = placeRows(x.a, x.k, x.dtype);
  c = placeRows(x.c, x.n, x.outer ? x.dtype : x.resultType());
  int64_t size = 0;
  std::vector<int64_t> strides = matrixStrides(size);
  x.w.batchStrides = {strides[0]};
  x.w.rowStride = strides[1], x.w.colStride = strides[2];
  w = Array(x.outer ? x.resultType() : x.dtype, size);
  ids.assign(placeRows(x.ids, 1, DType::F64).bytes.size() / 8, 12345);
}

void GroupedProduct::fillRows() {
  int64_t count = 1;
  for (int64_t dim : x.rows)
    count *= dim;
  std::normal_distribution<double> normal;
  for (int64_t row = 0; row < count; ++row) {
    int64_t rest = row, aAt = 0, cAt = 0, idAt = 0;
    for (size_t i = x.rows.size(); i-- > 0; rest /= x.rows[i]) {
      int64_t index = rest % x.rows[i];
      aAt += index * x.a.strides[i], cAt += index * x.c.strides[i];
      idAt += index * x.ids.strides[i];
    }
    int64_t &id = ids[idAt];
    id = y.only >= 0 ? y.only : int64_t(engine() % x.e);
    if (y.dropped && row % y.dropped == 0) {
      id = row % 2 ? -1 - row : x.e + row;
      continue;
    }
    for (int64_t i = 0; i < x.k; ++i)
      a.set(aAt + i * x.a.column, normal(engine));
    for (int64_t i = 0; x.outer && i < x.n; ++i)
      c.set(cAt + i * x.c.column, normal(engine));
  }
}

void GroupedProduct::computeOnCpu() {
  GroupedBuffers at;
  at.a = a.data(), at.c = c.data(), at.w = w.data(), at.ids = ids.data();
  std::string error;
  int64_t bytes = groupedWorkspace(x, 1, error);
  ASSERT_GE(bytes, 0) << error;
  Aligned<char> workspace(bytes);
  at.workspace = workspace.data.get();
  makeGrouped(x, at, 1)();
}

void GroupedProduct::expectSameAsOnCpu(const char *kernel) {
  Array gotC = c, gotW = w;
  ASSERT_NO_FATAL_FAILURE(computeOnCpu());
  std::string error;
  int64_t own = cuda::groupedWorkspace(x, error);
  ASSERT_GE(own, 0) << error;
  Aligned<char> scratch(own);
  std::fill_n(scratch.data.get(), own, char(0xff));
  GroupedBuffers at;
  at.a = a.data(), at.ids = ids.data();
  at.workspace = scratch.data.get();
  at.c = gotC.data(), at.w = gotW.data();
  cuda::Enqueue enqueue = cuda::makeGrouped(kernels(), x, at);
  takeLaunches();
  runInBothOrders([&] { enqueue(nullptr); },
                  [&] { return bytesOf(x.outer ? gotW.bytes : gotC.bytes); });
  if (kernel)
    EXPECT_EQ(takeLaunches()[1], kernel);
  double tolerance = toleranceOf(x.dtype, x.wideResult);
  EXPECT_LE(difference(gotC, c), tolerance) << nameOf(x.dtype) << x.outer;
  EXPECT_LE(difference(gotW, w), tolerance) << nameOf(x.dtype) << x.outer;
}

void expectGrouped(std::mt19937 &engine, const GroupedCase &y,
                   const char *kernel = nullptr) {
  GroupedProduct(engine, y).expectSameAsOnCpu(kernel);
}
} // namespace

TEST(CudaProduct, AnyLayout) {
  std::mt19937 engine(1);
  for (DType type : {DType::F32, DType::F64, DType::BF16})
    for (int round = 0; round < 25; ++round) {
      Gemm x;
      x.dtype = type;
      auto size = [&] {
        return int64_t(1 + engine() % (engine() % 2 ? 9 : 90));
      };
      x.m = size(), x.n = size(), x.k = size();
      for (int64_t i = engine() % 4; i > 0; --i)
        x.batch.push_back(1 + engine() % 2);
      expectGemm(engine, x);
      x.alpha = 0.7, x.accumulate = engine() % 2;
      if (engine() % 2)
        x.bias.arena = 0;
      x.wideResult = type == DType::BF16 && engine() % 2;
      x.activation = Activation(engine() % 5);
      expectGemm(engine, x);
    }
}

TEST(CudaProduct, KeepsTheOperandOfTheActivation) {
  std::mt19937 engine(2);
  for (DType type : {DType::F32, DType::F64, DType::BF16})
    for (int activation = 0; activation < 5; ++activation) {
      Gemm x;
      x.dtype = type;
      x.m = 70, x.n = 33, x.k = 20;
      x.bias.arena = x.preActivation.arena = 0;
      x.activation = Activation(activation);
      expectGemm(engine, x);
    }
}

TEST(CudaProduct, EmptySums) {
  std::mt19937 engine(3);
  Gemm x;
  x.m = 5, x.n = 6, x.k = 0;
  expectGemm(engine, x);
  x.bias.arena = 0;
  expectGemm(engine, x);
}

TEST(CudaGrouped, RowsTimesTheMatricesTheyChoose) {
  std::mt19937 engine(4);
  for (bool outer : {false, true})
    for (DType type : {DType::F32, DType::F64, DType::BF16}) {
      bool isBf16 = type == DType::BF16;
      expectGrouped(engine, {type, outer, false, {150, 2}, 5, 37, 70, 7});
      expectGrouped(engine, {type, outer, isBf16, {200}, 3, 16, 64, 0});
      expectGrouped(engine, {type, outer, false, {3, 5, 7}, 40, 65, 9, 3});
      expectGrouped(engine, {type, outer, false, {90}, 4, 8, 8, 0, 2});
      expectGrouped(engine, {type, outer, isBf16, {64}, 2, 20, 20, 1});
      expectGrouped(engine, {type, outer, false, {1, 1}, 1, 1, 1});
    }
}

TEST(CudaGrouped, OnMatrixUnits) {
  std::mt19937 engine(6);
  for (bool isWide : {false, true})
    for (auto layout : {GroupedCase::Rows, GroupedCase::Columns}) {
      auto expect = [&](std::vector<int64_t> rows, int64_t e, int64_t k,
                        int64_t n, int64_t dropped) {
        GroupedCase x{DType::BF16, false, isWide, rows, e, k, n, dropped};
        x.layout = layout;
        bool isRows = layout == GroupedCase::Rows;
        expectGrouped(engine, x,
                      isRows ? "cleave_grouped_bf16"
                             : "cleave_grouped_bf16_columns");
        x.outer = true;
        expectGrouped(engine, x, "cleave_grouped_outer_bf16");
      };
      expect({140, 2}, 3, 48, 72, 7);
      expect({300}, 2, 136, 136, 0);
      expect({33}, 20, 8, 24, 3);
      expect({40}, 4, 16, 8, 1);
    }
}

TEST(CudaGrouped, OnWarpgroups) {
  std::mt19937 engine(7);
  for (bool isWide : {false, true})
    for (auto layout : {GroupedCase::Rows, GroupedCase::Columns}) {
      auto expect = [&](std::vector<int64_t> rows, int64_t e, int64_t k,
                        int64_t n, int64_t dropped) {
        GroupedCase x{DType::BF16, false, isWide, rows, e, k, n, dropped};
        x.layout = layout;
        bool isRows = layout == GroupedCase::Rows;
        expectGrouped(engine, x,
                      isRows ? "cleave_grouped_warpgroup"
                             : "cleave_grouped_warpgroup_columns");
        // The gradient of the matrices is computed only into matrices with
        // contiguous rows.
        if (!isRows)
          return;
        x.outer = true;
        expectGrouped(engine, x,
                      k < 128 ? "cleave_grouped_outer_bf16"
                              : "cleave_grouped_outer_warpgroup");
      };
      bool isRows = layout == GroupedCase::Rows, all = test::triesAll();
      if (all || (isRows && !isWide))
        expect({140, 2}, 3, 328, 264, 7);
      if (all || (!isRows && isWide))
        expect({300}, 2, 136, 520, 0);
      expect({33}, 5, 64, 256, 3);
      expect({130}, 1, 8, 256, 1);
    }
}

TEST(CudaGrouped, SaysWhatADeviceCannotDo) {
  GroupedGemm x;
  x.rows = {4};
  x.e = 20000, x.k = x.n = 1;
  x.a.strides = x.c.strides = x.ids.strides = {1};
  x.w.batchStrides = {1};
  std::string error;
  EXPECT_EQ(cuda::groupedWorkspace(x, error), -1);
  EXPECT_EQ(error, "grouped_gemm of 4 rows and 20000 matrices; a device takes "
                   "at most 2147483647 and 12287");
}
