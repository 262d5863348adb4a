// Compares grouped products, in which each row chooses a matrix, with naive
// loops. Matrices that no row chooses are NaN, so that reading them is
// detected.

#include "Helpers.h"

#include "cleave/workspace.h"
#include "cpu/grouped.h"
#include "cpu/micro.h"

#include <cmath>

using namespace cleave;
using namespace cleave::program;
using namespace cleave::test;

namespace {
struct Case {
  int64_t tokens, slots, e, k, n;
  bool transposed = false; // w is [e, n, k]
  bool shared = false;     // a token's choices (slots) all read one row
  // One in `dropped` ids is out of range, below or above. If `dropped` is 0,
  // all ids are in range.
  int64_t dropped = 0;
  int64_t only = -1; // the only matrix that is chosen
};

template <class T> constexpr DType dtypeOf() {
  return std::is_same_v<T, float> ? DType::F32 : DType::F64;
}

template <class T> struct Data {
  Case x;
  GroupedGemm op;
  std::vector<int64_t> ids;
  std::vector<T> a, c, w;

  Data(const Case &x, bool outer) : x(x) {
    int64_t rows = x.tokens * x.slots;
    op.outer = outer;
    op.dtype = dtypeOf<T>();
    op.rows = {x.tokens, x.slots};
    op.e = x.e, op.k = x.k, op.n = x.n;
    op.ids.strides = {x.slots, 1};
    op.a.strides = {x.shared ? x.k : x.slots * x.k, x.shared ? 0 : x.k};
    op.c.strides = {x.slots * x.n, x.n};
    op.w.batchStrides = {x.k * x.n};
    op.w.rowStride = x.transposed ? 1 : x.n;
    op.w.colStride = x.transposed ? x.k : 1;
    std::mt19937 engine(7);
    for (int64_t row = 0; row < rows; ++row) {
      int64_t id = x.only >= 0 ? x.only : int64_t(engine() % x.e);
      if (x.dropped && row % x.dropped == 1)
        id = row % 2 ? -1 - row : x.e + row;
      ids.push_back(id);
    }
    a = randomVector<T>(x.shared ? x.tokens * x.k : rows * x.k, 1);
    c = randomVector<T>(rows * x.n, 2);
    w = randomVector<T>(x.e * x.k * x.n, 3);
    if (outer)
      w.assign(w.size(), T(NAN));
    else
      c.assign(c.size(), T(NAN));
    std::vector<bool> isChosen(x.e);
    for (int64_t row = 0; row < rows; ++row) {
      if (ids[row] >= 0 && ids[row] < x.e) {
        isChosen[ids[row]] = true;
        continue;
      }
      if (!x.shared)
        std::fill_n(a.begin() + row * x.k, x.k, T(NAN));
      if (outer)
        std::fill_n(c.begin() + row * x.n, x.n, T(NAN));
    }
    for (int64_t m = 0; m < x.e; ++m)
      if (!isChosen[m])
        std::fill_n(w.begin() + m * x.k * x.n, x.k * x.n, T(NAN));
  }

  T &weight(int64_t m, int64_t i, int64_t j) {
    return w[m * x.k * x.n + (x.transposed ? j * x.k + i : i * x.n + j)];
  }

  // The expected result of the command, in double.
  std::vector<double> expected() {
    std::vector<double> out((op.outer ? w : c).size(), 0.0);
    for (int64_t row = 0; row < x.tokens * x.slots; ++row) {
      int64_t m = ids[row];
      if (m < 0 || m >= x.e)
        continue;
      const T *from = &a[(x.shared ? row / x.slots : row) * x.k];
      for (int64_t i = 0; i < x.k; ++i)
        for (int64_t j = 0; j < x.n; ++j)
          if (op.outer)
            out[&weight(m, i, j) - w.data()] +=
                double(from[i]) * double(c[row * x.n + j]);
          else
            out[row * x.n + j] += double(from[i]) * double(weight(m, i, j));
    }
    return out;
  }

  std::vector<T> run(int threads) {
    std::string error;
    int64_t bytes = groupedWorkspace(op, threads, error);
    EXPECT_GE(bytes, 0) << error;
    Aligned<char> workspace(bytes);
    std::fill_n(workspace.data.get(), bytes, char(0xff));
    makeGrouped(
        op, {a.data(), c.data(), w.data(), ids.data(), workspace.data.get()},
        threads)();
    return op.outer ? w : c;
  }
};

template <class T> void check(const Case &x, double tolerance) {
  for (bool outer : {false, true}) {
    SCOPED_TRACE(outer ? "outer" : "product");
    std::vector<double> expected = Data<T>(x, outer).expected();
    std::vector<T> one = Data<T>(x, outer).run(1);
    EXPECT_LT(relativeError(one, expected), tolerance);
    for (int threads : {2, 3})
      EXPECT_EQ(Data<T>(x, outer).run(threads), one) << threads << " threads";
  }
}

class Grouped : public testing::TestWithParam<Case> {};

TEST_P(Grouped, AgreesWithLoops) {
  check<float>(GetParam(), 1e-5);
  check<double>(GetParam(), 1e-13);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Grouped,
    testing::Values(Case{1, 1, 1, 1, 1}, Case{5, 2, 3, 4, 6},
                    Case{5, 2, 3, 1, 2, true}, Case{5, 2, 3, 2, 1, true},
                    Case{5, 2, 3, 1, 2}, Case{5, 2, 3, 2, 1},
                    Case{5, 2, 3, 4, 6, true}, Case{7, 2, 3, 5, 9, false, true},
                    Case{7, 2, 3, 5, 9, true, true, 3},
                    Case{300, 2, 4, 33, 270, false, false, 5},
                    Case{130, 2, 5, 300, 40, true, true},
                    Case{64, 1, 64, 17, 19},
                    Case{200, 1, 8, 20, 24, false, false, 0, 5},
                    Case{9, 1, 2, 8, 8, false, false, 1}));

TEST(Grouped, AllRowsAreDropped) {
  Case x{6, 2, 3, 4, 5};
  for (bool outer : {false, true}) {
    Data<float> data(x, outer);
    data.ids.assign(data.ids.size(), -1);
    data.a.assign(data.a.size(), NAN);
    std::vector<float> got = data.run(2);
    EXPECT_EQ(got, std::vector<float>(got.size(), 0.0f));
  }
}

// A bf16 product is accumulated in f32 and rounded once, or not at all if the
// result is f32.
TEST_P(Grouped, Bf16) {
  for (bool outer : {false, true})
    for (bool wide : {false, true}) {
      Data<double> data(GetParam(), outer);
      for (auto *values : {&data.a, &data.c, &data.w})
        *values = roundedToBf16(*values);
      std::vector<double> expected = data.expected();
      auto a = toBf16(data.a), c = toBf16(data.c), w = toBf16(data.w);
      std::vector<float> sums(expected.size(), NAN);
      GroupedGemm op = data.op;
      op.dtype = DType::BF16;
      op.wideResult = wide;
      std::string error;
      int64_t bytes = groupedWorkspace(op, 2, error);
      ASSERT_GE(bytes, 0) << error;
      Aligned<char> workspace(bytes);
      void *to = sums.data();
      makeGrouped(op,
                  {a.data(), wide && !outer ? to : c.data(),
                   wide && outer ? to : w.data(), data.ids.data(),
                   workspace.data.get()},
                  2)();
      if (wide)
        EXPECT_LT(relativeError(sums, expected), 1e-6);
      else
        EXPECT_LT(relativeError(fromBf16(outer ? w : c), expected), halfUlp);
    }
}

TEST(Grouped, RefusesWhatItCannotDo) {
  std::string error;
  GroupedGemm x = Data<float>({5, 2, 3, 4, 6}, false).op;
  x.dtype = DType::I64;
  EXPECT_EQ(groupedWorkspace(x, 1, error), -1);
  EXPECT_NE(error.find("i64"), std::string::npos) << error;
  x.dtype = DType::F32;
  x.c.strides = {1};
  EXPECT_EQ(groupedWorkspace(x, 1, error), -1);
  x = Data<float>({5, 2, 3, 4, 6}, false).op;
  x.e = 0;
  EXPECT_EQ(groupedWorkspace(x, 1, error), -1);
}
} // namespace
