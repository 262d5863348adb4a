// Matrix products of any layout, with all features of program::Gemm.

#include "product.h"

using namespace cleave::cuda;
using namespace cleave::cuda::device;

namespace {
enum Activation { None, GeluTanh, GeluErf, Relu, Silu }; // program::Activation

template <class T> CLEAVE_DEVICE T activated(int activation, T x) {
  switch (activation) {
  case GeluTanh: { // x * sigmoid(2u)
    T u = x * T(0.7978845608028654) * (x * x * T(0.044715) + T(1));
    return x / (expOf(u * T(-2)) + T(1));
  }
  case GeluErf:
    return x * T(0.5) * (erfOf(x * T(0.7071067811865476)) + T(1));
  case Relu:
    return x > T(0) ? x : T(0);
  case Silu:
    return x / (expOf(-x) + T(1));
  }
  return x;
}

template <class T> CLEAVE_DEVICE void multiply(const GemmArguments &x) {
  int64_t column0 = blockIdx.x % x.columnTiles * productColumns;
  int64_t rest = blockIdx.x / x.columnTiles;
  int64_t row0 = rest % x.rowTiles * productRows, matrix = rest / x.rowTiles;
  int64_t a = 0, b = 0, c = 0;
  for (int i = 0; i < x.numBatch; ++i) {
    int64_t index = matrix % x.batch[i];
    matrix /= x.batch[i];
    a += index * x.aBatch[i], b += index * x.bBatch[i];
    c += index * x.cBatch[i];
  }
  auto left = sideOf<T>(x.a, x.isBf16, x.aCol == 1, x.m, x.k,
                        [&](int64_t row, int64_t depth) {
                          return a + row * x.aRow + depth * x.aCol;
                        });
  auto right = sideOf<T>(x.b, x.isBf16, x.bRow == 1, x.n, x.k,
                         [&](int64_t column, int64_t depth) {
                           return b + depth * x.bRow + column * x.bCol;
                         });
  T sums[productSide][productSide];
  multiplyTile<T>(left, right, row0, column0, sums);
  bool isNarrow = x.isBf16 && !x.isWide;
  forElements<T>(
      sums, row0, column0, x.m, x.n, [&](int64_t row, int64_t column, T sum) {
        int64_t at = c + row * x.cRow + column * x.cCol;
        T value = sum * T(x.alpha);
        if (x.bias)
          value += loadAs<T>(x.bias, column, x.isBf16);
        if (x.accumulate)
          value += loadAs<T>(x.c, at, isNarrow);
        if (x.preActivation)
          storeAs<T>(x.preActivation, at, value, isNarrow);
        storeAs<T>(x.c, at, activated(x.activation, value), isNarrow);
      });
}
} // namespace

extern "C" __global__ void __launch_bounds__(productThreads)
    cleave_gemm_f32(GemmArguments x) {
  multiply<float>(x);
}
extern "C" __global__ void __launch_bounds__(productThreads)
    cleave_gemm_f64(GemmArguments x) {
  multiply<double>(x);
}

CLEAVE_KERNELS(gemm, CLEAVE_KERNEL(gemm_f32), CLEAVE_KERNEL(gemm_f64))
