// Conversion between the bits of an element and numbers.

#ifndef CLEAVE_TEST_UNIT_CODEGEN_GPUINTERPRETER_BITS_H
#define CLEAVE_TEST_UNIT_CODEGEN_GPUINTERPRETER_BITS_H

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/TypeUtilities.h"

#include <cmath>
#include <cstdint>
#include <cstring>

namespace cleave::gpusim {

/// Returns the number of bits of an element. Pointers and indices have 64.
inline unsigned widthOf(mlir::Type type) {
  mlir::Type element = mlir::getElementTypeOrSelf(type);
  return element.isIntOrFloat() ? element.getIntOrFloatBitWidth() : 64;
}

inline uint64_t maskOf(unsigned width) {
  return width >= 64 ? ~uint64_t(0) : (uint64_t(1) << width) - 1;
}

inline int64_t signedOf(uint64_t bits, unsigned width) {
  unsigned shift = 64 - width;
  return static_cast<int64_t>(bits << shift) >> shift;
}

/// floatOf() returns the float or double with these bits, bitsOf() the bits of
/// a value. The host rounds as a device does.
template <typename T> T floatOf(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}
template <typename T> uint64_t bitsOf(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}

inline uint64_t roundToBFloat16(float value) {
  uint32_t bits = bitsOf(value);
  if (std::isnan(value))
    return (bits >> 16) | 0x40;
  return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}

/// Converts an element of any float type to double, which is exact.
inline double wideOf(uint64_t bits, mlir::Type type) {
  if (type.isF64())
    return floatOf<double>(bits);
  return floatOf<float>(type.isBF16() ? bits << 16 : bits);
}

/// Returns the bits of `value` rounded to `type`. For bf16, the value is
/// rounded to f32 first.
inline uint64_t narrowTo(double value, mlir::Type type) {
  if (type.isF64())
    return bitsOf(value);
  float rounded = static_cast<float>(value);
  return type.isBF16() ? roundToBFloat16(rounded) : bitsOf(rounded);
}

} // namespace cleave::gpusim

#endif
