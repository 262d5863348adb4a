// The epilogue of a product: bias, activation, storing the activation's
// operand, or multiplying by the activation's derivative. A separate kernel
// computes the row sums of A or the column sums of B.

#include "device_code.h"
#include "epilogue.h"

using namespace cleave::cuda;
using namespace cleave::cuda::device;

namespace {
enum Activation { None, GeluTanh, GeluErf, Relu, Silu }; // as program::

CLEAVE_DEVICE float loaded(Bf16 x) { return widen(x); }
CLEAVE_DEVICE float loaded(float x) { return x; }
CLEAVE_DEVICE double loaded(double x) { return x; }
CLEAVE_DEVICE void put(Bf16 &at, float x) { at = narrow(x); }
CLEAVE_DEVICE void put(float &at, float x) { at = x; }
CLEAVE_DEVICE void put(double &at, double x) { at = x; }

template <class T> CLEAVE_DEVICE T activate(int kind, T x) {
  switch (kind) {
  case GeluTanh:
    return T(0.5) * x *
           (1 +
            tanhOf(T(0.79788456080286535588) * (x + T(0.044715) * x * x * x)));
  case GeluErf:
    return T(0.5) * x * (1 + erfOf(x * T(0.70710678118654752440)));
  case Relu:
    return x > 0 ? x : T(0);
  case Silu:
    return x / (1 + expOf(-x));
  default:
    return x;
  }
}

// Returns the derivative of gelu_tanh.
template <class T> CLEAVE_DEVICE T slope(T x) {
  T root = T(0.79788456080286535588), cubic = T(0.044715) * x * x;
  T t = tanhOf(root * (x + cubic * x));
  return T(0.5) * (1 + t + x * (1 - t * t) * root * (1 + 3 * cubic));
}

// Applies the epilogue. C is the type of the product's result; S is the type of
// the bias and of the other operands.
template <class C, class S>
CLEAVE_DEVICE void epilogue(const EpilogueArguments &x) {
  int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t at = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
       at < x.count; at += step) {
    int64_t rest = at, offset = 0, column = 0;
    for (int i = 0; i < x.dims; ++i) {
      int64_t next = rest / x.size[i], index = rest - next * x.size[i];
      offset += index * x.stride[i];
      if (i == x.columnDim)
        column = index;
      rest = next;
    }
    C *c = reinterpret_cast<C *>(x.c) + offset;
    auto value = loaded(*c);
    if (x.bias)
      value += loaded(reinterpret_cast<const S *>(x.bias)[column]);
    if (x.preActivation)
      put(reinterpret_cast<S *>(x.preActivation)[offset], value);
    if (x.derivativeAt)
      value *=
          slope(loaded(reinterpret_cast<const S *>(x.derivativeAt)[offset]));
    else
      value = activate(x.activation, value);
    put(*c, value);
  }
}

// Sums the columns of an operand with elements of type S. The sums have type C.
// Terms are added in a fixed order.
template <class C, class S>
CLEAVE_DEVICE void sums(const OperandSumsArguments &x) {
  using Wide = decltype(loaded(C()));
  Wide *parts = reinterpret_cast<Wide *>(sharedMemory());
  int lane = int(threadIdx.x) / sumsColumns;
  int64_t column =
      int64_t(blockIdx.x) * sumsColumns + threadIdx.x % sumsColumns;
  Wide sum = 0;
  if (column < x.columns) {
    const S *from =
        reinterpret_cast<const S *>(x.from) + column * x.columnStride;
    for (int64_t row = lane; row < x.rows; row += sumsLanes)
      sum += loaded(from[row * x.rowStride]);
  }
  parts[threadIdx.x] = sum;
  for (int half = sumsLanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half)
      parts[threadIdx.x] += parts[threadIdx.x + half * sumsColumns];
  }
  if (lane == 0 && column < x.columns)
    put(reinterpret_cast<C *>(x.to)[column], parts[threadIdx.x]);
}
} // namespace

#define CLEAVE_EPILOGUE(name, C, S)                                            \
  extern "C" __global__ void __launch_bounds__(256)                            \
      cleave_epilogue_##name(EpilogueArguments x) {                            \
    epilogue<C, S>(x);                                                         \
  }                                                                            \
  extern "C" __global__ void __launch_bounds__(sumsColumns *sumsLanes)         \
      cleave_operand_sums_##name(OperandSumsArguments x) {                     \
    sums<C, S>(x);                                                             \
  }
CLEAVE_EPILOGUE(f32, float, float)
CLEAVE_EPILOGUE(f64, double, double)
CLEAVE_EPILOGUE(bf16, Bf16, Bf16)
CLEAVE_EPILOGUE(wide, float, Bf16)

CLEAVE_KERNELS(epilogue, CLEAVE_KERNEL(epilogue_f32),
               CLEAVE_KERNEL(epilogue_f64), CLEAVE_KERNEL(epilogue_bf16),
               CLEAVE_KERNEL(epilogue_wide), CLEAVE_KERNEL(operand_sums_f32),
               CLEAVE_KERNEL(operand_sums_f64),
               CLEAVE_KERNEL(operand_sums_bf16),
               CLEAVE_KERNEL(operand_sums_wide))
