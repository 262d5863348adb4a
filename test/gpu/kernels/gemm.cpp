// Checks matrix products by cuBLASLt, and by our kernel for any strides.

#include "harness.h"

#include "blas.h"
#include "cleave/workspace.h"
#include "error.h"

#include <algorithm>

using namespace cleave;
using namespace cleave::gpu;
using program::Activation;
using program::Gemm;
using program::MatrixRef;

namespace {
double activated(double x, Activation activation) {
  switch (activation) {
  case Activation::None:
    return x;
  case Activation::GeluTanh:
    return 0.5 * x *
           (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
  case Activation::GeluErf:
    return 0.5 * x * (1 + std::erf(x * 0.7071067811865476));
  case Activation::Relu:
    return x > 0 ? x : 0;
  case Activation::Silu:
    return x / (1 + std::exp(-x));
  }
  return NAN;
}

double slopeOfGelu(double x) {
  double root = 0.7978845608028654, cubic = 0.044715 * x * x;
  double t = std::tanh(root * (x + cubic * x));
  return 0.5 * (1 + t + x * (1 - t * t) * root * (1 + 3 * cubic));
}

struct Operands {
  Array a, b, c, bias, pre, at, sums;
};
struct Results {
  std::vector<Expected> c, pre, sums;
};

Results reference(const Gemm &x, const Operands &in) {
  Results out;
  out.c.resize(in.c.size());
  out.pre.resize(in.pre.size());
  std::vector<double> right(x.k * x.n), sums(x.n), magnitudes(x.n);
  forAll(x.batch, [&](const std::vector<int64_t> &index) {
    int64_t aAt = dot(index, x.a.batchStrides),
            bAt = dot(index, x.b.batchStrides),
            cAt = dot(index, x.c.batchStrides);
    for (int64_t l = 0; l < x.k; ++l)
      for (int64_t j = 0; j < x.n; ++j)
        right[l * x.n + j] =
            in.b.at(bAt + l * x.b.rowStride + j * x.b.colStride);
    for (int64_t i = 0; i < x.m; ++i) {
      std::fill(sums.begin(), sums.end(), 0);
      std::fill(magnitudes.begin(), magnitudes.end(), 0);
      for (int64_t l = 0; l < x.k; ++l) {
        double left =
            x.alpha * in.a.at(aAt + i * x.a.rowStride + l * x.a.colStride);
        for (int64_t j = 0; j < x.n; ++j) {
          sums[j] += left * right[l * x.n + j];
          magnitudes[j] += std::abs(left * right[l * x.n + j]);
        }
      }
      for (int64_t j = 0; j < x.n; ++j) {
        int64_t at = cAt + i * x.c.rowStride + j * x.c.colStride;
        double sum = sums[j], magnitude = magnitudes[j];
        if (x.accumulate)
          sum += in.c.at(at), magnitude += std::abs(in.c.at(at));
        // cuBLASLt may round the product before our kernel applies the bias and
        // the activation. The activation multiplies this rounding error by its
        // slope, which is below 1.2.
        double product = std::abs(sum);
        if (x.bias.present())
          sum += in.bias.at(j), magnitude += std::abs(in.bias.at(j));
        bool goesOn = x.bias.present() || x.activation != Activation::None;
        double rounded = goesOn ? product + 1.2 * std::abs(sum) : 0;
        if (x.preActivation.present())
          out.pre[at] = {sum, magnitude, 0, rounded, true};
        double value = x.derivativeAt.present()
                           ? sum * slopeOfGelu(in.at.at(at))
                           : activated(sum, x.activation);
        out.c[at] = {value, magnitude, 0, rounded, true};
      }
    }
  });
  bool isOfA = x.sumsOf == program::GemmOperand::A;
  for (int64_t i = 0; x.sums.present() && i < x.numSums(); ++i) {
    Expected sum;
    sum.isWritten = true;
    for (int64_t l = 0; l < x.k; ++l) {
      double term = isOfA ? in.a.at(i * x.a.rowStride + l * x.a.colStride)
                          : in.b.at(l * x.b.rowStride + i * x.b.colStride);
      sum.value += term, sum.terms += std::abs(term);
    }
    out.sums.push_back(sum);
  }
  return out;
}

// Draws everything about a random product except its layout.
Gemm gemmOf(Case &one, DType type, bool isWide) {
  Gemm x;
  x.dtype = type, x.wideResult = isWide;
  int64_t most = one.isSmall ? 40 : 300;
  x.m = one.length(most), x.n = one.length(most), x.k = one.length(2 * most);
  if (one.one(6)) { // few results, of sums that are cut in parts
    x.m = std::min<int64_t>(x.m, 64), x.n = std::min<int64_t>(x.n, 64);
    x.k = one.between(1, one.isSmall ? 500 : 20000);
  }
  x.alpha = one.one(3) ? -0.75 : 1;
  x.accumulate = one.one(3);
  x.activation = one.one(2) ? Activation::None : Activation(one.below(5));
  if (one.one(2))
    x.bias.arena = 0;
  for (int64_t i = one.below(one.isSmall ? 2 : 3); i > 0; --i)
    x.batch.push_back(one.between(1, 4));
  one.say("m", x.m), one.say("n", x.n), one.say("k", x.k);
  one.say("batch", x.batch);
  one.say("alpha " + std::to_string(x.alpha));
  one.say("accumulate", x.accumulate);
  one.say("activation", int64_t(x.activation));
  one.say("bias", x.bias.present());
  return x;
}

// Turns some products into products of a backward pass. These also multiply the
// result by the derivative of gelu, or also sum the elements of an operand.
void takeGradient(Case &one, Gemm &x) {
  if (!one.one(3))
    return;
  x.bias = {}, x.activation = Activation::None;
  if (!x.wideResult && one.one(2)) {
    x.accumulate = false;
    x.activation = Activation::GeluTanh;
    x.derivativeAt.arena = 0;
    one.say("with the derivative of gelu");
    return;
  }
  x.batch.clear();
  x.alpha = 1;
  x.sums.arena = 0;
  x.sumsOf = program::GemmOperand(one.below(2));
  one.say("without batch and alpha, sums of", int64_t(x.sumsOf));
}

void say(Case &one, const char *name, const MatrixRef &matrix) {
  std::vector<int64_t> all = matrix.batchStrides;
  all.insert(all.end(), {matrix.rowStride, matrix.colStride});
  one.say(name, all);
}

// Returns the number of elements that a matrix spans in memory, including gaps.
int64_t spanOf(const Gemm &x, const MatrixRef &matrix, int64_t rows,
               int64_t columns) {
  int64_t last =
      (rows - 1) * matrix.rowStride + (columns - 1) * matrix.colStride;
  for (size_t i = 0; i < x.batch.size(); ++i)
    last += (x.batch[i] - 1) * matrix.batchStrides[i];
  return last + 1;
}

enum class By { CublasLt, Tf32, OurKernel };

void checkGemm(Case &one, Gemm x, By by) {
  // The product stores the activation's operand, too, if rows of the result are
  // contiguous.
  bool isGradient = x.derivativeAt.present() || x.sums.present();
  if (!isGradient && !x.wideResult && x.c.colStride == 1 && one.one(3))
    x.preActivation.arena = 0;
  one.say("keeps operand", x.preActivation.present());
  say(one, "a", x.a), say(one, "b", x.b), say(one, "c", x.c);
  auto make = [&](DType type, int64_t count) {
    int64_t shift = one.one(4) ? one.between(1, 3) : 0;
    if (shift)
      one.say("shift", shift);
    return Array(type, count, shift);
  };
  Operands at;
  at.a = make(x.dtype, spanOf(x, x.a, x.m, x.k));
  at.b = make(x.dtype, spanOf(x, x.b, x.k, x.n));
  at.c = make(x.resultType(), spanOf(x, x.c, x.m, x.n));
  at.bias = make(x.dtype, x.bias.present() ? x.n : 0);
  at.pre = make(x.dtype, x.preActivation.present() ? at.c.size() : 0);
  at.at = make(x.dtype, x.derivativeAt.present() ? at.c.size() : 0);
  at.sums = make(x.resultType(), x.sums.present() ? x.numSums() : 0);
  at.at.randomize(one);
  at.a.randomize(one), at.b.randomize(one), at.bias.randomize(one);
  if (x.accumulate)
    at.c.randomize(one);

  GemmBuffers buffers;
  buffers.a = at.a.upload(one.stream), buffers.b = at.b.upload(one.stream);
  buffers.c = at.c.upload(one.stream);
  if (x.bias.present())
    buffers.bias = at.bias.upload(one.stream);
  if (x.preActivation.present())
    buffers.preActivation = at.pre.upload(one.stream);
  if (x.derivativeAt.present())
    buffers.derivativeAt = at.at.upload(one.stream);
  if (x.sums.present())
    buffers.sums = at.sums.upload(one.stream);
  std::string error;
  int64_t bytes = cuda::gemmWorkspace(x, error);
  if (bytes < 0)
    fail(CLEAVE_INTERNAL, error);
  cuda::DeviceMemory workspace(bytes, "workspace");
  buffers.workspace = workspace.data();
  bool isOwn = false;
  one.run(by == By::OurKernel ? cuda::makePlainGemm(one.kernels, x, buffers)
                              : cuda::makeGemm(one.device, x, buffers, bytes,
                                               by == By::Tf32, &isOwn));
  if (isOwn)
    one.refusal = "cuBLASLt has no algorithm for it";

  Results want = reference(x, at);
  const Limit &limit = by == By::Tf32 ? limitTf32 : limitOf(x.resultType());
  at.c.download(one.stream);
  one.compare("c", at.c, want.c, limit);
  if (x.preActivation.present()) {
    at.pre.download(one.stream);
    one.compare("operand of the activation", at.pre, want.pre, limit);
  }
  if (x.sums.present()) {
    at.sums.download(one.stream);
    one.compare("sums", at.sums, want.sums, limit);
  }
}

// Draws row-major and column-major matrices with gaps, with the batch dimension
// outermost or between the rows, and operands that a batch shares.
void checkBlas(Case &one, DType type, bool isWide, By by) {
  Gemm x = gemmOf(one, type, isWide);
  takeGradient(one, x);
  auto place = [&](MatrixRef &matrix, int64_t rows, int64_t columns,
                   bool isRead, bool mayTurn) {
    bool isTurned = mayTurn && one.one(2);
    int64_t inner = isTurned ? rows : columns,
            outer = isTurned ? columns : rows;
    int64_t pad = one.one(2) ? 0 : one.one(2) ? 8 : one.between(1, 7);
    bool isBetween = !x.batch.empty() && one.one(3); // heads of a position
    int64_t line = inner + pad;
    matrix.batchStrides.assign(x.batch.size(), 0);
    int64_t stride = line;
    auto addBatch = [&](size_t i) {
      bool isShared = isRead && one.one(4);
      matrix.batchStrides[i] = isShared ? 0 : stride;
      if (!isShared)
        stride *= x.batch[i];
    };
    if (isBetween)
      addBatch(x.batch.size() - 1);
    int64_t lines = stride;
    stride *= outer;
    for (size_t i = x.batch.size() - (isBetween ? 1 : 0); i-- > 0;)
      addBatch(i);
    matrix.rowStride = isTurned ? 1 : lines;
    matrix.colStride = isTurned ? lines : 1;
  };
  place(x.a, x.m, x.k, true, true);
  place(x.b, x.k, x.n, true, true);
  place(x.c, x.m, x.n, false, one.one(4));
  checkGemm(one, x, by);
}

void checkPlain(Case &one, DType type, bool isWide) {
  Gemm x = gemmOf(one, type, isWide);
  auto place = [&](MatrixRef &matrix, int64_t rows, int64_t columns,
                   bool isRead) {
    std::vector<int64_t> dims = x.batch;
    dims.insert(dims.end(), {rows, columns});
    int64_t count = 0;
    std::vector<int64_t> strides = !isRead && one.one(2)
                                       ? denseStrides(dims, count)
                                       : randomStrides(one, dims, count);
    matrix.colStride = strides.back();
    matrix.rowStride = strides[strides.size() - 2];
    strides.resize(x.batch.size());
    for (int64_t &stride : strides)
      if (isRead && one.one(4))
        stride = 0;
    matrix.batchStrides = strides;
  };
  place(x.a, x.m, x.k, true);
  place(x.b, x.k, x.n, true);
  place(x.c, x.m, x.n, false);
  checkGemm(one, x, By::OurKernel);
}
} // namespace

void gpu::addGemmFamilies(std::vector<Family> &to) {
  using enum DType;
  auto blas = [&](const char *name, void (*check)(Case &)) {
    to.push_back({std::string("gemm, cuBLASLt, ") + name, check, 48, 24});
  };
  blas("f32", [](Case &one) { checkBlas(one, F32, false, By::CublasLt); });
  blas("f32 as tf32", [](Case &one) { checkBlas(one, F32, false, By::Tf32); });
  blas("f64", [](Case &one) { checkBlas(one, F64, false, By::CublasLt); });
  blas("bf16", [](Case &one) { checkBlas(one, BF16, false, By::CublasLt); });
  blas("bf16 to f32",
       [](Case &one) { checkBlas(one, BF16, true, By::CublasLt); });
  auto plain = [&](const char *name, void (*check)(Case &)) {
    to.push_back({std::string("gemm, any strides, ") + name, check, 32, 12});
  };
  plain("f32", [](Case &one) { checkPlain(one, F32, false); });
  plain("f64", [](Case &one) { checkPlain(one, F64, false); });
  plain("bf16", [](Case &one) { checkPlain(one, BF16, false); });
  plain("bf16 to f32", [](Case &one) { checkPlain(one, BF16, true); });
}
