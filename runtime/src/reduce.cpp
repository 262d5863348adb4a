// Elementwise reductions of several buffers in a fixed order, so that results
// are reproducible.

#include "transport.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

using namespace cleave;
using program::DType;
using program::ReduceOp;

namespace {
// The number of bytes that are reduced at a time. A block of the destination
// and a block of one source fit into the first-level cache together.
constexpr int64_t blockBytes = 8192;

// Sums of integers wrap around. They are computed in unsigned types, because
// signed overflow is undefined in C++.
struct Sum {
  template <class T> T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(uint64_t(a) + uint64_t(b));
    else
      return a + b;
  }
};
// The sum of booleans is their parity, because they have one bit.
struct Parity {
  uint8_t operator()(uint8_t a, uint8_t b) const { return a ^ b; }
};
// If either operand is NaN, the result is NaN, so that a NaN is never lost.
struct Max {
  template <class T> T operator()(T a, T b) const {
    return (a > b || a != a) ? a : b;
  }
};
struct Min {
  template <class T> T operator()(T a, T b) const {
    return (a < b || a != a) ? a : b;
  }
};

template <class T> struct Same {
  using Wide = T;
  static T load(T x) { return x; }
  static T store(T x) { return x; }
};

struct BF16 {
  using Wide = float;
  static float load(uint16_t x) {
    uint32_t bits = uint32_t(x) << 16;
    float out;
    std::memcpy(&out, &bits, 4);
    return out;
  }
  static uint16_t store(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    if (x != x)
      return 0x7fc0;
    return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
};

template <class T, class Codec, class Op>
void reduce(char *dst, const std::vector<const char *> &srcs, int64_t count,
            Op op) {
  using Wide = typename Codec::Wide;
  constexpr int64_t block = blockBytes / sizeof(Wide);
  Wide sum[block];
  for (int64_t at = 0; at < count; at += block) {
    int64_t n = std::min(block, count - at);
    auto *first = reinterpret_cast<const T *>(srcs[0]) + at;
    for (int64_t i = 0; i < n; ++i)
      sum[i] = Codec::load(first[i]);
    for (size_t s = 1; s < srcs.size(); ++s) {
      auto *next = reinterpret_cast<const T *>(srcs[s]) + at;
      for (int64_t i = 0; i < n; ++i)
        sum[i] = op(sum[i], Wide(Codec::load(next[i])));
    }
    auto *out = reinterpret_cast<T *>(dst) + at;
    for (int64_t i = 0; i < n; ++i)
      out[i] = Codec::store(sum[i]);
  }
}

template <class T, class Codec = Same<T>>
void reduceOp(char *dst, const std::vector<const char *> &srcs, int64_t count,
              ReduceOp op) {
  switch (op) {
  case ReduceOp::Sum:
    return reduce<T, Codec>(dst, srcs, count, Sum());
  case ReduceOp::Max:
    return reduce<T, Codec>(dst, srcs, count, Max());
  case ReduceOp::Min:
    return reduce<T, Codec>(dst, srcs, count, Min());
  }
}
} // namespace

void cleave::reduceInto(char *dst, const std::vector<const char *> &srcs,
                        int64_t count, DType dtype, ReduceOp op) {
  switch (dtype) {
  case DType::F32:
    return reduceOp<float>(dst, srcs, count, op);
  case DType::F64:
    return reduceOp<double>(dst, srcs, count, op);
  case DType::BF16:
    return reduceOp<uint16_t, BF16>(dst, srcs, count, op);
  case DType::I64:
    return reduceOp<int64_t>(dst, srcs, count, op);
  case DType::I32:
    return reduceOp<int32_t>(dst, srcs, count, op);
  case DType::I8:
    return reduceOp<int8_t>(dst, srcs, count, op);
  case DType::U8:
    if (op == ReduceOp::Sum)
      return reduce<uint8_t, Same<uint8_t>>(dst, srcs, count, Parity());
    return reduceOp<uint8_t>(dst, srcs, count, op);
  }
}
