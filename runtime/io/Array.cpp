//===- Array.cpp - arrays of the host part and their element types --------===//
#include "cleave/io/Array.h"
#include "cleave/io/Error.h"

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>

namespace cleave {

static int64_t product(const std::vector<int64_t> &shape) {
  int64_t count = 1;
  for (int64_t dim : shape)
    count *= dim;
  return count;
}

int64_t Array::elements() const { return product(shape); }
int64_t ArrayView::elements() const { return product(shape); }

Array makeArray(std::string_view dtype, std::vector<int64_t> shape) {
  Array array{std::string(dtype), std::move(shape), {}};
  array.bytes.resize(array.elements() * elementSize(dtype));
  return array;
}

std::string shapeToString(const std::vector<int64_t> &shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

bool isFloat(std::string_view dtype) {
  return dtype == "f64" || dtype == "f32" || dtype == "bf16" || dtype == "f16";
}

bool isInteger(std::string_view dtype) {
  return elementSize(dtype) && !isFloat(dtype) && dtype != "i1";
}

//===----------------------------------------------------------------------===//
// Elements as numbers
//===----------------------------------------------------------------------===//

template <typename T> static T load(const std::byte *data, int64_t index) {
  T value;
  std::memcpy(&value, data + index * sizeof(T), sizeof(T));
  return value;
}
template <typename T>
static void store(std::byte *data, int64_t index, T value) {
  std::memcpy(data + index * sizeof(T), &value, sizeof(T));
}

static float bf16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

static uint16_t floatToBf16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value))
    return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

static float f16ToFloat(uint16_t bits) {
  uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  uint32_t exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent == 31) // infinity or NaN
    return std::bit_cast<float>(sign | 0x7f800000 | (fraction << 13));
  if (exponent == 0) {
    float value = std::ldexp(static_cast<float>(fraction), -24);
    return sign ? -value : value;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) |
                              (fraction << 13));
}

static uint16_t doubleToF16(double value) {
  uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  double magnitude = std::fabs(value);
  if (std::isnan(value))
    return sign | 0x7e00;
  if (magnitude >= 65520.0) // rounds to infinity
    return sign | 0x7c00;
  if (magnitude < std::ldexp(1.0, -14)) // below the normal range
    return sign |
           static_cast<uint16_t>(std::nearbyint(std::ldexp(magnitude, 24)));
  int exponent;
  double fraction = std::frexp(magnitude, &exponent); // in [0.5, 1)
  auto mantissa =
      static_cast<uint32_t>(std::nearbyint(std::ldexp(fraction, 11)));
  // If the mantissa was rounded up to 2048, mantissa - 1024 is 1024. The
  // addition then carries into the exponent, and the mantissa bits become 0.
  // This is the correct result.
  return sign |
         static_cast<uint16_t>(((exponent + 14) << 10) + (mantissa - 1024));
}

int64_t integerAt(std::string_view dtype, const std::byte *data,
                  int64_t index) {
  if (dtype == "i64" || dtype == "u64")
    return load<int64_t>(data, index);
  if (dtype == "i32")
    return load<int32_t>(data, index);
  if (dtype == "u32")
    return load<uint32_t>(data, index);
  if (dtype == "i16")
    return load<int16_t>(data, index);
  if (dtype == "u16")
    return load<uint16_t>(data, index);
  if (dtype == "i8")
    return load<int8_t>(data, index);
  return load<uint8_t>(data, index);
}

static double floatAt(std::string_view dtype, const std::byte *data,
                      int64_t index) {
  if (dtype == "f64")
    return load<double>(data, index);
  if (dtype == "f32")
    return load<float>(data, index);
  uint16_t bits = load<uint16_t>(data, index);
  return dtype == "bf16" ? bf16ToFloat(bits) : f16ToFloat(bits);
}

/// Returns whether a conversion between these types may turn a finite number
/// into an infinity.
static bool narrows(std::string_view from, std::string_view to) {
  return elementSize(to) < elementSize(from) || (from == "bf16" && to == "f16");
}

static std::string shortText(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

static void convertFloats(std::string_view from, const std::byte *source,
                          std::string_view to, std::byte *target, int64_t count,
                          const std::string &what) {
  const bool mayNarrow = narrows(from, to);
  for (int64_t i = 0; i < count; ++i) {
    double value = floatAt(from, source, i);
    if (to == "f64")
      store(target, i, value);
    else if (to == "f32")
      store(target, i, static_cast<float>(value));
    else if (to == "bf16")
      store(target, i, floatToBf16(static_cast<float>(value)));
    else
      store(target, i, doubleToF16(value));
    if (mayNarrow && std::isfinite(value) &&
        !std::isfinite(floatAt(to, target, i)))
      throw InputError(what + ": element " + std::to_string(i) + " is " +
                       shortText(value) + ", which does not fit into " +
                       std::string(to));
  }
}

/// Returns the smallest and the largest value of an integer type, clamped to
/// the range of i64.
static std::pair<int64_t, int64_t> range(std::string_view dtype) {
  if (dtype == "i1")
    return {0, 1};
  if (dtype == "i64")
    return {std::numeric_limits<int64_t>::min(),
            std::numeric_limits<int64_t>::max()};
  if (dtype == "u64")
    return {0, std::numeric_limits<int64_t>::max()};
  int bits = 8 * static_cast<int>(elementSize(dtype));
  if (dtype[0] == 'u')
    return {0, (int64_t(1) << bits) - 1};
  return {-(int64_t(1) << (bits - 1)), (int64_t(1) << (bits - 1)) - 1};
}

static void convertIntegers(std::string_view from, const std::byte *source,
                            std::string_view to, std::byte *target,
                            int64_t count, const std::string &what) {
  auto [low, high] = range(to);
  for (int64_t i = 0; i < count; ++i) {
    int64_t value = integerAt(from, source, i);
    if (from == "i1")
      value = value != 0;
    if (value < low || value > high || (from == "u64" && value < 0))
      throw InputError(what + ": element " + std::to_string(i) + " is " +
                       std::to_string(value) + ", which does not fit into " +
                       std::string(to));
    switch (elementSize(to)) {
    case 8:
      store(target, i, value);
      break;
    case 4:
      store(target, i, static_cast<uint32_t>(value));
      break;
    case 2:
      store(target, i, static_cast<uint16_t>(value));
      break;
    default:
      store(target, i, static_cast<uint8_t>(value));
    }
  }
}

void convertElements(std::string_view from, const std::byte *source,
                     std::string_view to, std::byte *target, int64_t count,
                     const std::string &what) {
  if (from == to) {
    if (count)
      std::memcpy(target, source, count * elementSize(to));
    return;
  }
  if (isFloat(from) && isFloat(to))
    return convertFloats(from, source, to, target, count, what);
  if (!isFloat(from) && !isFloat(to))
    return convertIntegers(from, source, to, target, count, what);
  throw InputError(what + ": has element type " + std::string(from) +
                   ", expected " + std::string(to));
}

int64_t firstBeyond(std::string_view from, const std::byte *data, int64_t count,
                    std::string_view to) {
  if (!narrows(from, to))
    return -1;
  // Numbers that exceed the largest finite number by less than half a unit in
  // the last place are still rounded to it.
  const double limit = to == "f16"    ? 65520
                       : to == "bf16" ? 0x1.FFp127
                                      : 0x1.FFFFFFp127;
  for (int64_t i = 0; i < count; ++i)
    if (double value = std::fabs(floatAt(from, data, i));
        std::isfinite(value) && value >= limit)
      return i;
  return -1;
}

int64_t firstNonFinite(std::string_view dtype, const std::byte *data,
                       int64_t count) {
  if (!isFloat(dtype))
    return -1;
  for (int64_t i = 0; i < count; ++i)
    if (!std::isfinite(floatAt(dtype, data, i)))
      return i;
  return -1;
}

} // namespace cleave
