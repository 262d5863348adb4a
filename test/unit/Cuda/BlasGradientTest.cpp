// Products by cuBLASLt with the derivative of an activation or with sums of an
// operand, compared with sums in double, on the simulated CUDA library that
// records calls.

#include "Products.h"

#include <cmath>
#include <cstdlib>

using namespace cleave;
using namespace cleave::program;
using namespace cleave::test;

namespace {
class BlasGradientTest : public Products {
protected:
  // The operands of a matrix product that also multiplies by the derivative of
  // an activation, or that also sums an operand along k (the gradient of a
  // bias). The copies on the host keep the values from before the product runs.
  struct Product {
    Product(const Gemm &gemm, int64_t shift, bool tf32)
        : gemm(gemm), shift(shift), tf32(tf32) {}

    double result(const Operand &of, int64_t index) const {
      DType type = gemm.resultType();
      return load(of.at(shift * sizeOf(type)), type, index);
    }
    // Returns the allowed relative error of a result.
    double unit() const {
      return gemm.resultType() == DType::F64   ? 1e-13
             : tf32                            ? 5e-3
             : gemm.resultType() == DType::F32 ? 2e-5
                                               : 0.02;
    }

    const Gemm &gemm;
    const int64_t shift;
    const bool tf32;
    const int64_t results = span(gemm, gemm.c, gemm.m, gemm.n);
    Operand a = make(gemm.dtype, span(gemm, gemm.a, gemm.m, gemm.k), shift, 1);
    Operand b = make(gemm.dtype, span(gemm, gemm.b, gemm.k, gemm.n), shift, 2);
    Operand c = make(gemm.resultType(), results, shift, 3);
    Operand at = make(gemm.dtype, results, shift, 4);
    Operand sums = make(gemm.resultType(), gemm.numSums(), shift, 5);
  };

  static void expectNear(double got, double expected, double magnitude,
                         double unit, const char *what) {
    EXPECT_NEAR(got, expected, unit * (1 + magnitude)) << what;
  }

  // Runs the product and compares the results with sums in double.
  static Counts run(const Gemm &gemm, int64_t shift = 0, bool tf32 = false) {
    Product x(gemm, shift, tf32);
    Counts counts = compute(x);
    int64_t matrices = 1;
    for (int64_t dim : gemm.batch)
      matrices *= dim;
    for (int64_t matrix = 0; matrix < matrices; ++matrix)
      checkMatrix(x, matrix);
    if (gemm.sums.present())
      checkSums(x);
    EXPECT_EQ(takeErrors(), "");
    return counts;
  }

  // Runs the product. Returns how many cuBLASLt products and kernel launches
  // were necessary.
  static Counts compute(const Product &x) {
    int64_t size = sizeOf(x.gemm.dtype), wide = sizeOf(x.gemm.resultType());
    std::string error;
    int64_t bytes = cuda::gemmWorkspace(x.gemm, error);
    EXPECT_EQ(error, "");
    cuda::DeviceMemory workspace(bytes, "workspace");
    GemmBuffers buffers;
    buffers.a = x.a.at(x.shift * size), buffers.b = x.b.at(x.shift * size);
    buffers.c = x.c.at(x.shift * wide);
    if (x.gemm.derivativeAt.present())
      buffers.derivativeAt = x.at.at(x.shift * size);
    if (x.gemm.sums.present())
      buffers.sums = x.sums.at(x.shift * wide);
    buffers.workspace = workspace.data();

    cuda::Stream stream = cuda::makeStream();
    std::vector<cleave_access> accesses;
    for (const Operand *read : {&x.a, &x.b, &x.at})
      accesses.push_back({read->memory.data(), read->memory.size(), 0});
    for (const Operand *written : {&x.c, &x.sums})
      accesses.push_back({written->memory.data(), written->memory.size(), 1});
    cleave_note note = {};
    note.source = "a product";
    note.accesses = accesses.data();
    note.num_accesses = std::ssize(accesses);
    cuda::driver().note(stream.get(), &note);
    Counts before{count("products"), count("launches")};
    cuda::makeGemm(cuda::Device::of(0), x.gemm, buffers, bytes,
                   x.tf32)(stream.get());
    cuda::check(cuda::driver().cuStreamSynchronize(stream.get()), "waiting");
    Counts after{count("products"), count("launches")};
    return {after.products - before.products, after.launches - before.launches};
  }

  static void checkMatrix(const Product &x, int64_t matrix) {
    int64_t aBase = 0, bBase = 0, cBase = 0;
    for (int64_t rest = matrix, d = std::ssize(x.gemm.batch); d-- > 0;) {
      int64_t index = rest % x.gemm.batch[d];
      rest /= x.gemm.batch[d];
      aBase += index * x.gemm.a.batchStrides[d];
      bBase += index * x.gemm.b.batchStrides[d];
      cBase += index * x.gemm.c.batchStrides[d];
    }
    for (int64_t i = 0; i < x.gemm.m; ++i)
      for (int64_t j = 0; j < x.gemm.n; ++j) {
        double sum = 0, magnitude = 0;
        for (int64_t l = 0; l < x.gemm.k; ++l) {
          double term =
              load(x.a.copy.data(), x.gemm.dtype,
                   aBase + i * x.gemm.a.rowStride + l * x.gemm.a.colStride) *
              load(x.b.copy.data(), x.gemm.dtype,
                   bBase + l * x.gemm.b.rowStride + j * x.gemm.b.colStride);
          sum += term, magnitude += std::abs(term);
        }
        int64_t index = cBase + i * x.gemm.c.rowStride + j * x.gemm.c.colStride;
        sum *= x.gemm.alpha;
        if (x.gemm.accumulate)
          sum += load(x.c.copy.data(), x.gemm.resultType(), index);
        if (x.gemm.derivativeAt.present())
          sum *= slopeOfGelu(load(x.at.copy.data(), x.gemm.dtype, index));
        expectNear(x.result(x.c, index), sum, magnitude, x.unit(), "result");
      }
  }

  static void checkSums(const Product &x) {
    bool isOfA = x.gemm.sumsOf == GemmOperand::A;
    for (int64_t i = 0; i < x.gemm.numSums(); ++i) {
      double sum = 0, magnitude = 0;
      for (int64_t l = 0; l < x.gemm.k; ++l) {
        double value =
            isOfA ? load(x.a.copy.data(), x.gemm.dtype,
                         i * x.gemm.a.rowStride + l * x.gemm.a.colStride)
                  : load(x.b.copy.data(), x.gemm.dtype,
                         l * x.gemm.b.rowStride + i * x.gemm.b.colStride);
        sum += value, magnitude += std::abs(value);
      }
      // Sums of an operand are computed from the operand itself, not from the
      // operand rounded to TF32.
      expectNear(x.result(x.sums, i), sum, magnitude, x.tf32 ? 2e-5 : x.unit(),
                 "sum");
    }
  }

  // Computes the derivative of GELU by finite differences.
  static double slopeOfGelu(double x) {
    auto gelu = [](long double x) {
      return 0.5L * x *
             (1 +
              std::tanh(0.79788456080286535588L * (x + 0.044715L * x * x * x)));
    };
    long double h = 3e-3L; // the error is of order h^6
    auto around = [&](int i) { return gelu(x + i * h) - gelu(x - i * h); };
    return double((45 * around(1) - 9 * around(2) + around(3)) / (60 * h));
  }
};

TEST_F(BlasGradientTest, DerivativeOfGelu) {
  for (DType type : {DType::F32, DType::F64, DType::BF16}) {
    SCOPED_TRACE(nameOf(type));
    Gemm gemm = plain(type, 24, 40, 16);
    gemm.activation = Activation::GeluTanh;
    gemm.derivativeAt = {0, 0, {}};
    gemm.alpha = 0.5;
    Counts counts = run(gemm);
    EXPECT_EQ(counts.products, 1);
    // cuBLASLt has no epilogues in f64.
    EXPECT_EQ(counts.launches, type == DType::F64);
    // Rows whose length is no multiple of 8, and buffers that are not aligned.
    gemm = plain(type, 24, 41, 16);
    gemm.activation = Activation::GeluTanh;
    gemm.derivativeAt = {0, 0, {}};
    EXPECT_EQ(run(gemm).launches, 1);
    gemm.n = 40;
    gemm.b = rowMajor(40), gemm.c = rowMajor(40);
    EXPECT_EQ(run(gemm, 1).launches, 1);
    // A batch that takes two cuBLASLt calls; each call must read its own part
    // of the activation's operand.
    gemm = plain(type, 8, 8, 5);
    gemm.activation = Activation::GeluTanh;
    gemm.derivativeAt = {0, 0, {}};
    gemm.batch = {2, 3};
    gemm.a = {{0, 0, {}}, {8 * 15, 5}, 15, 1};
    gemm.b = {{0, 0, {}}, {8 * 15, 5}, 1, 15};
    gemm.c = {{0, 0, {}}, {3 * 64, 64}, 8, 1};
    EXPECT_EQ(run(gemm).products, 2);
    // cuBLASLt cannot express this layout, so our kernels compute the product.
    gemm = plain(type, 5, 8, 7);
    gemm.activation = Activation::GeluTanh;
    gemm.derivativeAt = {0, 0, {}};
    gemm.a.rowStride = 20, gemm.a.colStride = 2;
    counts = run(gemm);
    EXPECT_EQ(counts.products, 0);
    EXPECT_EQ(counts.launches, 2);
  }
}

TEST_F(BlasGradientTest, SumsOfOperands) {
  for (DType type : {DType::F32, DType::F64, DType::BF16})
    for (int bits = 0; bits < 32; ++bits) {
      SCOPED_TRACE(testing::Message() << nameOf(type) << " bits " << bits);
      bool isOfB = bits & 1, isWide = bits & 2, turnsA = bits & 4,
           turnsB = bits & 8;
      Gemm gemm = plain(type, 24, 40, 130);
      gemm.wideResult = isWide && type == DType::BF16;
      gemm.accumulate = bits & 16;
      if (turnsA)
        gemm.a.rowStride = 1, gemm.a.colStride = 24;
      if (turnsB)
        gemm.b.rowStride = 1, gemm.b.colStride = 130;
      gemm.sums = {0, 0, {}};
      gemm.sumsOf = isOfB ? GemmOperand::B : GemmOperand::A;
      // The operands have the layouts that gradients of weights have.
      bool isFused = type != DType::F64 && (isOfB ? !turnsB : turnsA);
      Counts counts = run(gemm);
      EXPECT_EQ(counts.products, 1);
      EXPECT_EQ(counts.launches, isFused ? 0 : 1);
      if (!isFused)
        continue;
      // In the following cases (alpha is not 1, unaligned buffers, TF32),
      // cuBLASLt does not define the sums of the operand or refuses to compute
      // them. So a kernel of the runtime computes these sums.
      gemm.alpha = 0.5;
      EXPECT_EQ(run(gemm).launches, 1);
      gemm.alpha = 1;
      EXPECT_EQ(run(gemm, 1).launches, 1);
      if (type == DType::F32) {
        EXPECT_EQ(run(gemm, 0, true).launches, 1);
      }
    }
  // The columns of C are contiguous. In the last case, cuBLASLt cannot express
  // the layout of A.
  Gemm gemm = plain(DType::F32, 24, 40, 16);
  gemm.c.rowStride = 1, gemm.c.colStride = 24;
  gemm.a.rowStride = 1, gemm.a.colStride = 24;
  gemm.sums = {0, 0, {}};
  EXPECT_EQ(run(gemm).launches, 0);
  gemm.sumsOf = GemmOperand::B;
  EXPECT_EQ(run(gemm).launches, 0);
  gemm.a.rowStride = 2, gemm.a.colStride = 48;
  Counts counts = run(gemm);
  EXPECT_EQ(counts.products, 0);
  EXPECT_EQ(counts.launches, 2);
}

// If cuBLASLt offers no algorithm for the epilogue, our kernels compute the
// gradients.
TEST_F(BlasGradientTest, GradientsThatCublasLtRefuses) {
  setenv("CLEAVE_RECORDER_REFUSES_GRADIENTS", "1", 1);
  Gemm gemm = plain(DType::BF16, 24, 40, 16);
  gemm.activation = Activation::GeluTanh;
  gemm.derivativeAt = {0, 0, {}};
  Counts counts = run(gemm);
  EXPECT_EQ(counts.products, 1);
  EXPECT_EQ(counts.launches, 1);
  gemm = plain(DType::BF16, 24, 40, 16);
  gemm.wideResult = true;
  gemm.sums = {0, 0, {}};
  gemm.sumsOf = GemmOperand::B;
  counts = run(gemm);
  EXPECT_EQ(counts.products, 1);
  EXPECT_EQ(counts.launches, 1);
  unsetenv("CLEAVE_RECORDER_REFUSES_GRADIENTS");
}

TEST_F(BlasGradientTest, GradientsThatAreNone) {
  std::string error;
  Gemm gemm = plain(DType::F32, 4, 4, 4);
  gemm.derivativeAt = {0, 0, {}};
  EXPECT_EQ(cuda::gemmWorkspace(gemm, error), -1);
  EXPECT_NE(error.find("derivative of other than gelu_tanh"),
            std::string::npos);
  gemm = plain(DType::F32, 4, 4, 4);
  gemm.sums = gemm.bias = {0, 0, {}};
  EXPECT_EQ(cuda::gemmWorkspace(gemm, error), -1);
  EXPECT_NE(error.find("sums of an operand"), std::string::npos);
  // CPUs have neither.
  gemm.bias = {};
  EXPECT_EQ(cleave::gemmWorkspace(gemm, 1, error), -1);
  EXPECT_NE(error.find("only programs for CUDA devices"), std::string::npos);
}
} // namespace
