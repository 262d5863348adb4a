// Access to single elements of buffers, by type. The functions are inline
// because they are called for every element of a tile.
#ifndef CLEAVE_RUNTIME_ELEMENTS_H
#define CLEAVE_RUNTIME_ELEMENTS_H

#include "cleave/program.h"

#include <cstring>
#include <limits>
#include <type_traits>

namespace cleave {

// Returns the value of 16 bits as a bf16.
inline float fromBf16(uint16_t x) {
  uint32_t bits = uint32_t(x) << 16;
  float out;
  std::memcpy(&out, &bits, 4);
  return out;
}

// Rounds to the nearest bf16 and returns its bits; ties go to even.
inline uint16_t toBf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if (x != x)
    return 0x7fc0;
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// Returns element `i` of data of a floating-point type.
inline double loadFloat(program::DType type, const void *data, int64_t i) {
  switch (type) {
  case program::DType::F32:
    return static_cast<const float *>(data)[i];
  case program::DType::F64:
    return static_cast<const double *>(data)[i];
  default:
    return fromBf16(static_cast<const uint16_t *>(data)[i]);
  }
}

// Writes element `i`, rounded to the type.
inline void storeFloat(program::DType type, void *data, int64_t i,
                       double value) {
  switch (type) {
  case program::DType::F32:
    static_cast<float *>(data)[i] = static_cast<float>(value);
    break;
  case program::DType::F64:
    static_cast<double *>(data)[i] = value;
    break;
  default:
    static_cast<uint16_t *>(data)[i] = toBf16(static_cast<float>(value));
  }
}

// Returns whether elements of the type are read by loadFloat; other types are
// read by loadInt.
inline bool isFloat(program::DType type) {
  return type == program::DType::F32 || type == program::DType::F64 ||
         type == program::DType::BF16;
}

// Returns element `i` of data of an integer or boolean type.
inline int64_t loadInt(program::DType type, const void *data, int64_t i) {
  switch (type) {
  case program::DType::I64:
    return static_cast<const int64_t *>(data)[i];
  case program::DType::I32:
    return static_cast<const int32_t *>(data)[i];
  case program::DType::I8:
    return static_cast<const int8_t *>(data)[i];
  default:
    return static_cast<const uint8_t *>(data)[i];
  }
}

// Writes element `i`, truncated to the type.
inline void storeInt(program::DType type, void *data, int64_t i,
                     int64_t value) {
  switch (type) {
  case program::DType::I64:
    static_cast<int64_t *>(data)[i] = value;
    break;
  case program::DType::I32:
    static_cast<int32_t *>(data)[i] = static_cast<int32_t>(value);
    break;
  default:
    static_cast<int8_t *>(data)[i] = static_cast<int8_t>(value);
  }
}

// Copies an element between buffers. The types may differ if both are floating
// types.
inline void copyElement(program::DType dstType, void *dst, int64_t i,
                        program::DType srcType, const void *src, int64_t j) {
  if (dstType == srcType) {
    int64_t size = program::sizeOf(dstType);
    std::memcpy(static_cast<char *>(dst) + i * size,
                static_cast<const char *>(src) + j * size, size);
  } else {
    storeFloat(dstType, dst, i, loadFloat(srcType, src, j));
  }
}

// Combines two terms of a reduction. If either is NaN, so is the result.
template <class T> T combine(program::ReduceOp op, T a, T b) {
  switch (op) {
  case program::ReduceOp::Sum:
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(uint64_t(a) + uint64_t(b)); // wraps around
    else
      return a + b;
  case program::ReduceOp::Max:
    return (a > b || a != a) ? a : b;
  case program::ReduceOp::Min:
    return (a < b || a != a) ? a : b;
  }
  return a;
}

// Stores the identity of the reduction: the value that leaves the other operand
// unchanged.
inline void storeIdentity(program::DType type, void *dst, int64_t i,
                          program::ReduceOp op) {
  if (isFloat(type)) {
    double infinity = std::numeric_limits<double>::infinity();
    storeFloat(type, dst, i,
               op == program::ReduceOp::Sum   ? 0.0
               : op == program::ReduceOp::Max ? -infinity
                                              : infinity);
    return;
  }
  int bits = static_cast<int>(8 * program::sizeOf(type)) -
             (type == program::DType::U8 ? 0 : 1);
  int64_t high = bits == 63 ? INT64_MAX : (int64_t(1) << bits) - 1;
  int64_t low = type == program::DType::U8 ? 0 : -high - 1;
  storeInt(type, dst, i,
           op == program::ReduceOp::Sum   ? 0
           : op == program::ReduceOp::Max ? low
                                          : high);
}

} // namespace cleave

#endif // CLEAVE_RUNTIME_ELEMENTS_H
