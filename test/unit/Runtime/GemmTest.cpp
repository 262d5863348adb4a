// Compares matrix products with plain loops, in all layouts, with all epilogues
// and backends.

#include "Helpers.h"

#include "cleave/workspace.h"
#include "cpu/gemm.h"

using namespace cleave;
using namespace cleave::program;
using namespace cleave::test;

namespace {
double activate(Activation activation, double x) {
  switch (activation) {
  case Activation::None:
    return x;
  case Activation::GeluTanh:
    return 0.5 * x *
           (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  case Activation::GeluErf:
    return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
  case Activation::Relu:
    return x > 0 ? x : 0;
  case Activation::Silu:
    return x / (1 + std::exp(-x));
  }
  return x;
}

struct Layout {
  bool transposeA = false, transposeB = false, transposeC = false;
  int64_t pad = 0; // extra elements between rows
};

MatrixRef matrixOf(int64_t batch, int64_t rows, int64_t columns,
                   bool transposed, int64_t pad) {
  MatrixRef ref;
  ref.buffer = {0, 0, {}};
  ref.rowStride = transposed ? 1 : columns + pad;
  ref.colStride = transposed ? rows + pad : 1;
  if (batch > 1)
    ref.batchStrides = {(transposed ? columns : rows) *
                        (transposed ? rows + pad : columns + pad)};
  return ref;
}

Gemm makeProblem(DType dtype, int64_t batch, int64_t m, int64_t n, int64_t k,
                 Layout layout) {
  Gemm gemm;
  gemm.dtype = dtype;
  if (batch > 1)
    gemm.batch = {batch};
  gemm.m = m, gemm.n = n, gemm.k = k;
  gemm.a = matrixOf(batch, m, k, layout.transposeA, layout.pad);
  gemm.b = matrixOf(batch, k, n, layout.transposeB, layout.pad);
  gemm.c = matrixOf(batch, m, n, layout.transposeC, layout.pad);
  return gemm;
}

// Runs the product and compares it with loops in double. The padding between
// the rows of C must not be written.
template <class T>
void check(const Gemm &gemm, GemmBackend backend, int threads,
           double tolerance) {
  int64_t batch = 1;
  for (int64_t size : gemm.batch)
    batch *= size;
  auto extent = [&](const MatrixRef &ref, int64_t rows, int64_t columns) {
    int64_t last = (rows - 1) * ref.rowStride + (columns - 1) * ref.colStride;
    for (size_t i = 0; i < gemm.batch.size(); ++i)
      last += (gemm.batch[i] - 1) * ref.batchStrides[i];
    return last + 1;
  };
  auto a =
      randomVector<T>(extent(gemm.a, gemm.m, std::max<int64_t>(gemm.k, 1)), 1);
  auto b =
      randomVector<T>(extent(gemm.b, std::max<int64_t>(gemm.k, 1), gemm.n), 2);
  auto c = randomVector<T>(extent(gemm.c, gemm.m, gemm.n), 3);
  auto bias = randomVector<T>(gemm.n, 4);
  std::vector<double> expected(c.begin(), c.end());
  std::vector<T> pre = c;
  std::vector<double> expectedPre(c.begin(), c.end());
  for (int64_t index = 0; index < batch; ++index) {
    auto offset = [&](const MatrixRef &ref) {
      int64_t sum = 0, rest = index;
      for (size_t i = gemm.batch.size(); i-- > 0; rest /= gemm.batch[i])
        sum += rest % gemm.batch[i] * ref.batchStrides[i];
      return sum;
    };
    for (int64_t i = 0; i < gemm.m; ++i)
      for (int64_t j = 0; j < gemm.n; ++j) {
        double sum = 0;
        for (int64_t x = 0; x < gemm.k; ++x)
          sum += double(a[offset(gemm.a) + i * gemm.a.rowStride +
                          x * gemm.a.colStride]) *
                 double(b[offset(gemm.b) + x * gemm.b.rowStride +
                          j * gemm.b.colStride]);
        int64_t at =
            offset(gemm.c) + i * gemm.c.rowStride + j * gemm.c.colStride;
        sum = sum * gemm.alpha + (gemm.bias.present() ? bias[j] : 0) +
              (gemm.accumulate ? double(c[at]) : 0);
        expectedPre[at] = sum;
        expected[at] = activate(gemm.activation, sum);
      }
  }
  std::string error;
  int64_t bytes = gemmWorkspace(gemm, threads, error);
  ASSERT_GE(bytes, 0) << error;
  bytes = std::max(bytes, blockedGemmWorkspace(gemm, threads));
  Aligned<char> workspace(bytes);
  GemmBuffers buffers;
  buffers.a = a.data(), buffers.b = b.data(), buffers.c = c.data();
  buffers.bias = gemm.bias.present() ? bias.data() : nullptr;
  buffers.preActivation = gemm.preActivation.present() ? pre.data() : nullptr;
  buffers.workspace = workspace.data.get();
  auto run = makeGemm(gemm, buffers, threads, backend);
  run();
  EXPECT_LT(relativeError(c, expected), tolerance);
  if (gemm.preActivation.present())
    EXPECT_LT(relativeError(pre, expectedPre), tolerance);
}

void checkAll(Gemm gemm) {
  gemm.dtype = DType::F32;
  check<float>(gemm, GemmBackend::Auto, 1, 1e-5);
  check<float>(gemm, GemmBackend::Blocked, 1, 1e-5);
  check<float>(gemm, GemmBackend::Blocked, 3, 1e-5);
  gemm.dtype = DType::F64;
  check<double>(gemm, GemmBackend::Auto, 1, 1e-13);
  check<double>(gemm, GemmBackend::Auto, 3, 1e-13);
}

TEST(Gemm, Layouts) {
  for (int bits = 0; bits < 8; ++bits)
    for (int64_t pad : {0, 3}) {
      SCOPED_TRACE(testing::Message() << "bits " << bits << " pad " << pad);
      Layout layout{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, pad};
      checkAll(makeProblem(DType::F32, 1, 37, 51, 43, layout));
    }
}

TEST(Gemm, SizesAroundBlocks) {
  for (int64_t m : {1, 97, 130})
    for (int64_t n : {1, 16, 257})
      for (int64_t k : {1, 129, 300}) {
        SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k);
        checkAll(makeProblem(DType::F32, 1, m, n, k, {}));
      }
}

TEST(Gemm, EmptySumIsTheEpilogueOfZero) {
  Gemm gemm = makeProblem(DType::F32, 1, 5, 7, 0, {});
  gemm.a.rowStride = 1;
  gemm.bias = {0, 0, {}};
  checkAll(gemm);
}

TEST(Gemm, Batches) {
  for (int bits = 0; bits < 4; ++bits)
    checkAll(makeProblem(DType::F32, 5, 19, 23, 29,
                         {(bits & 1) != 0, (bits & 2) != 0, false, 2}));
  // B is the same for the whole batch.
  Gemm broadcast = makeProblem(DType::F32, 4, 9, 10, 11, {});
  broadcast.b.batchStrides = {0};
  checkAll(broadcast);
  // The operands have the layout [batch, position, head, feature]; the batch
  // dimensions are (batch, head).
  Gemm heads;
  heads.batch = {2, 3};
  heads.m = 8, heads.n = 8, heads.k = 5;
  heads.a = {{0, 0, {}}, {8 * 15, 5}, 15, 1};
  heads.b = {{0, 0, {}}, {8 * 15, 5}, 1, 15};
  heads.c = {{0, 0, {}}, {3 * 64, 64}, 8, 1};
  checkAll(heads);
}

TEST(Gemm, Epilogues) {
  for (Activation activation :
       {Activation::None, Activation::GeluTanh, Activation::GeluErf,
        Activation::Relu, Activation::Silu})
    for (int bits = 0; bits < 16; ++bits) {
      SCOPED_TRACE(testing::Message()
                   << "activation " << int(activation) << " bits " << bits);
      Gemm gemm = makeProblem(DType::F32, bits & 8 ? 3 : 1, 33, 47, 21, {});
      gemm.activation = activation;
      if (bits & 1)
        gemm.bias = {0, 0, {}};
      gemm.accumulate = bits & 2;
      if (bits & 4)
        gemm.preActivation = {0, 0, {}};
      checkAll(gemm);
      gemm.alpha = -0.5;
      checkAll(gemm);
    }
}

TEST(Gemm, ThreadsDoNotChangeTheResult) {
  Gemm gemm = makeProblem(DType::F64, 1, 300, 300, 70, {});
  auto a = randomVector<double>(300 * 70, 1),
       b = randomVector<double>(70 * 300, 2);
  std::vector<double> first(300 * 300), second(300 * 300);
  for (auto [threads, c] : {std::pair{1, &first}, std::pair{4, &second}}) {
    Aligned<char> workspace(blockedGemmWorkspace(gemm, threads));
    GemmBuffers buffers;
    buffers.a = a.data(), buffers.b = b.data(), buffers.c = c->data();
    buffers.workspace = workspace.data.get();
    makeGemm(gemm, buffers, threads)();
  }
  EXPECT_EQ(first, second);
}

// A bf16 product is accumulated in f32 and rounded once, or not at all if the
// result is f32.
TEST(Gemm, Bf16) {
  for (int bits = 0; bits < 16; ++bits)
    for (GemmBackend backend : {GemmBackend::Auto, GemmBackend::Blocked}) {
      Layout layout{(bits & 1) != 0, (bits & 2) != 0, false, bits & 4 ? 3 : 0};
      SCOPED_TRACE(testing::Message()
                   << "bits " << bits << " backend " << int(backend));
      constexpr int64_t m = 37, n = 51, k = 300;
      Gemm gemm = makeProblem(DType::BF16, bits & 8 ? 3 : 1, m, n, k, layout);
      auto a = roundedToBf16(randomVector<double>(3 * 40 * 303, 1)),
           b = roundedToBf16(randomVector<double>(3 * 303 * 54, 2));
      auto narrowA = toBf16(a), narrowB = toBf16(b);
      auto run = [&](DType dtype, bool wide, const void *left,
                     const void *right, auto &&c, bool accumulate) {
        Gemm one = gemm;
        one.dtype = dtype, one.wideResult = wide, one.accumulate = accumulate;
        std::string error;
        int64_t bytes = gemmWorkspace(one, 2, error);
        EXPECT_GE(bytes, 0) << error;
        Aligned<char> workspace(std::max(bytes, blockedGemmWorkspace(one, 2)));
        GemmBuffers buffers;
        buffers.a = left, buffers.b = right, buffers.c = c.data();
        buffers.workspace = workspace.data.get();
        makeGemm(one, buffers, 2, backend)();
        return std::vector<double>(c.begin(), c.end());
      };
      constexpr size_t size = 3 * m * (n + 3);
      auto expected = run(DType::F64, false, a.data(), b.data(),
                          std::vector<double>(size), false);
      auto wide = run(DType::BF16, true, narrowA.data(), narrowB.data(),
                      std::vector<float>(size), false);
      EXPECT_LT(relativeError(wide, expected), 1e-6);
      std::vector<uint16_t> narrow(size);
      run(DType::BF16, false, narrowA.data(), narrowB.data(), narrow, false);
      EXPECT_LT(relativeError(fromBf16(narrow), expected), halfUlp);
      if (backend == GemmBackend::Blocked)
        EXPECT_EQ(narrow, toBf16(wide));
      // Gradients accumulate in f32; in bf16, a term of 1/512 would be lost.
      std::vector<float> sums(size, 1.0f / 512);
      auto added =
          run(DType::BF16, true, narrowA.data(), narrowB.data(), sums, true);
      for (size_t i = 0; i < size; ++i)
        if (wide[i] != 0)
          EXPECT_NEAR(added[i] - wide[i], 1.0 / 512, 1e-5) << i;
    }
}

TEST(Gemm, RefusesWhatItCannotDo) {
  std::string error;
  Gemm gemm = makeProblem(DType::I32, 1, 2, 2, 2, {});
  EXPECT_EQ(gemmWorkspace(gemm, 1, error), -1);
  EXPECT_NE(error.find("i32"), std::string::npos) << error;
  gemm = makeProblem(DType::F32, 1, 2, 2, 2, {});
  gemm.wideResult = true;
  EXPECT_EQ(gemmWorkspace(gemm, 1, error), -1);
  EXPECT_NE(error.find("only that of bf16"), std::string::npos) << error;
  gemm = makeProblem(DType::F32, 3, 2, 2, 2, {});
  gemm.c.batchStrides = {0};
  EXPECT_EQ(gemmWorkspace(gemm, 1, error), -1);
  gemm.c.batchStrides = {};
  EXPECT_EQ(gemmWorkspace(gemm, 1, error), -1);
}
} // namespace
