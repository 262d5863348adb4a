// Elementwise reductions of several buffers, with operands in a fixed order.

#include "device_code.h"

using namespace cleave::cuda;
using namespace cleave::cuda::device;

namespace {
enum Op { Sum, Max, Min }; // as program::ReduceOp

CLEAVE_DEVICE float loaded(Bf16 x) { return widen(x); }
template <class T> CLEAVE_DEVICE T loaded(T x) { return x; }
CLEAVE_DEVICE void put(Bf16 &at, float x) { at = narrow(x); }
template <class T> CLEAVE_DEVICE void put(T &at, T x) { at = x; }

// Sums of integers wrap around; sums of booleans are their parity.
CLEAVE_DEVICE float sum(float a, float b) { return a + b; }
CLEAVE_DEVICE double sum(double a, double b) { return a + b; }
CLEAVE_DEVICE int64_t sum(int64_t a, int64_t b) {
  return int64_t(uint64_t(a) + uint64_t(b));
}
CLEAVE_DEVICE int32_t sum(int32_t a, int32_t b) {
  return int32_t(uint32_t(a) + uint32_t(b));
}
CLEAVE_DEVICE int8_t sum(int8_t a, int8_t b) { return int8_t(a + b); }
CLEAVE_DEVICE uint8_t sum(uint8_t a, uint8_t b) { return a ^ b; }

// Combines two elements. The result is NaN if either operand is NaN.
template <class T> CLEAVE_DEVICE T combine(int op, T a, T b) {
  if (op == Sum)
    return sum(a, b);
  if (op == Max)
    return (a > b || a != a) ? a : b;
  return (a < b || a != a) ? a : b;
}

template <class S, int width> struct alignas(sizeof(S) * width) Vector {
  S at[width];
};

/// Reads a vector of elements. The last vector of a row may be partial.
template <class S, int width>
CLEAVE_DEVICE void read(const char *from, bool isWhole, int64_t count,
                        Vector<S, width> &out) {
  if (isWhole) {
    if constexpr (sizeof(out) == 16) {
      uint4 bits = *reinterpret_cast<const uint4 *>(from);
      memcpy(&out, &bits, 16);
    } else {
      out = *reinterpret_cast<const Vector<S, width> *>(from);
    }
    return;
  }
  for (int i = 0; i < width; ++i)
    if (i < count)
      out.at[i] = reinterpret_cast<const S *>(from)[i];
}

template <class S, int width>
CLEAVE_DEVICE void reduce(const ReduceArguments &x) {
  using Wide = decltype(loaded(S()));
  int64_t step = int64_t(gridDim.x) * blockDim.x;
  int64_t units = x.rows * x.vectors;
  for (int64_t at = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; at < units;
       at += step) {
    int64_t row = x.rows == 1 ? 0 : at / x.vectors;
    int64_t first = (at - row * x.vectors) * width;
    int64_t left = x.count - first;
    bool isWhole = left >= width;
    int64_t from = row * x.srcStride + first * int64_t(sizeof(S));
    Vector<S, width> next{};
    Wide sums[width];
    read<S, width>(x.srcs[0] + from, isWhole, left, next);
#pragma unroll
    for (int i = 0; i < width; ++i)
      sums[i] = loaded(next.at[i]);
    // Four sources are loaded at a time.
    int s = 1;
    for (; s + 4 <= x.numSrcs; s += 4) {
      Vector<S, width> group[4] = {};
#pragma unroll
      for (int j = 0; j < 4; ++j)
        read<S, width>(x.srcs[s + j] + from, isWhole, left, group[j]);
#pragma unroll
      for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int i = 0; i < width; ++i)
          sums[i] = combine<Wide>(x.op, sums[i], loaded(group[j].at[i]));
    }
    for (; s < x.numSrcs; ++s) {
      read<S, width>(x.srcs[s] + from, isWhole, left, next);
#pragma unroll
      for (int i = 0; i < width; ++i)
        sums[i] = combine<Wide>(x.op, sums[i], loaded(next.at[i]));
    }
#pragma unroll
    for (int i = 0; i < width; ++i)
      put(next.at[i], sums[i]);
    char *to = x.dst + row * x.dstStride + first * int64_t(sizeof(S));
    if (isWhole) {
      if constexpr (sizeof(next) == 16) {
        uint4 bits;
        memcpy(&bits, &next, 16);
        *reinterpret_cast<uint4 *>(to) = bits;
      } else {
        *reinterpret_cast<Vector<S, width> *>(to) = next;
      }
      continue;
    }
    for (int i = 0; i < width; ++i)
      if (i < left)
        reinterpret_cast<S *>(to)[i] = next.at[i];
  }
}
} // namespace

#define CLEAVE_REDUCE(name, type)                                              \
  extern "C" __global__ void __launch_bounds__(256)                            \
      cleave_reduce_##name(ReduceArguments x) {                                \
    reduce<type, 16 / sizeof(type)>(x);                                        \
  }                                                                            \
  extern "C" __global__ void __launch_bounds__(256)                            \
      cleave_reduce_loose_##name(ReduceArguments x) {                          \
    reduce<type, 1>(x);                                                        \
  }
CLEAVE_REDUCE(f32, float)
CLEAVE_REDUCE(f64, double)
CLEAVE_REDUCE(bf16, Bf16)
CLEAVE_REDUCE(i64, int64_t)
CLEAVE_REDUCE(i32, int32_t)
CLEAVE_REDUCE(i8, int8_t)
CLEAVE_REDUCE(u8, uint8_t)

CLEAVE_KERNELS(reduce, CLEAVE_KERNEL(reduce_f32), CLEAVE_KERNEL(reduce_f64),
               CLEAVE_KERNEL(reduce_bf16), CLEAVE_KERNEL(reduce_i64),
               CLEAVE_KERNEL(reduce_i32), CLEAVE_KERNEL(reduce_i8),
               CLEAVE_KERNEL(reduce_u8), CLEAVE_KERNEL(reduce_loose_f32),
               CLEAVE_KERNEL(reduce_loose_f64),
               CLEAVE_KERNEL(reduce_loose_bf16),
               CLEAVE_KERNEL(reduce_loose_i64), CLEAVE_KERNEL(reduce_loose_i32),
               CLEAVE_KERNEL(reduce_loose_i8), CLEAVE_KERNEL(reduce_loose_u8))
