// Elements of host tensors: rounding, wrapping, storing, and reading from a
// file.

#include "Build.h"
#include "HostTensor.h"

#include "llvm/ADT/APFloat.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/MathExtras.h"

#include <cmath>

using llvm::ArrayRef;
using llvm::Twine;

namespace cleave::importer {

/// Converts a number to another format and back, rounding once to nearest, ties
/// to even.
static double throughFormat(llvm::APFloat number,
                            const llvm::fltSemantics &format) {
  bool losesInfo;
  number.convert(format, llvm::APFloat::rmNearestTiesToEven, &losesInfo);
  number.convert(llvm::APFloat::IEEEdouble(),
                 llvm::APFloat::rmNearestTiesToEven, &losesInfo);
  return number.convertToDouble();
}

double roundTo(Element type, double value) {
  if (type == Element::F32)
    return static_cast<float>(value);
  if (type == Element::BF16)
    return throughFormat(llvm::APFloat(value), llvm::APFloat::BFloat());
  if (type == Element::F16)
    return throughFormat(llvm::APFloat(value), llvm::APFloat::IEEEhalf());
  return value;
}

/// Converts a 64-bit integer to a float type, rounding once. A conversion
/// through double would round twice.
static double roundInteger(Element type, int64_t value, bool isUnsigned) {
  const llvm::fltSemantics &format =
      type == Element::F64    ? llvm::APFloat::IEEEdouble()
      : type == Element::F32  ? llvm::APFloat::IEEEsingle()
      : type == Element::BF16 ? llvm::APFloat::BFloat()
                              : llvm::APFloat::IEEEhalf();
  constexpr int64_t exact = int64_t(1) << 53;
  if ((isUnsigned ? 0 : -exact) <= value && value <= exact)
    return roundTo(type, static_cast<double>(value));
  llvm::APFloat number(format);
  number.convertFromAPInt(llvm::APInt(64, static_cast<uint64_t>(value)),
                          !isUnsigned, llvm::APFloat::rmNearestTiesToEven);
  return throughFormat(number, llvm::APFloat::IEEEdouble());
}

int64_t wrapTo(Element type, int64_t value) {
  switch (type) {
  case Element::U8:
    return static_cast<uint8_t>(value);
  case Element::I8:
    return static_cast<int8_t>(value);
  case Element::U16:
    return static_cast<uint16_t>(value);
  case Element::I16:
    return static_cast<int16_t>(value);
  case Element::I32:
    return static_cast<int32_t>(value);
  case Element::U32:
    return static_cast<uint32_t>(value);
  default:
    return value;
  }
}

void HostTensor::setInt(int64_t position, int64_t value) {
  if (element == Element::Bool)
    buffer->bools[position] = value != 0;
  else if (holdsFloats())
    buffer->floats[position] =
        roundInteger(element, value, /*isUnsigned=*/false);
  else
    buffer->ints[position] = wrapTo(element, value);
}

/// Truncates towards zero. Values out of range, which are undefined in C++,
/// saturate.
int64_t HostTensor::toInteger(double value, Element type) {
  constexpr double half = 9223372036854775808.0; // 2^63
  if (std::isnan(value))
    return 0;
  if (type == Element::U64 && value >= half)
    return value >= 2 * half
               ? -1
               : static_cast<int64_t>(static_cast<uint64_t>(value));
  if (value >= half)
    return std::numeric_limits<int64_t>::max();
  if (value < -half)
    return std::numeric_limits<int64_t>::min();
  return static_cast<int64_t>(value);
}

void HostTensor::setFloat(int64_t position, double value) {
  if (holdsFloats())
    buffer->floats[position] = roundTo(element, value);
  else if (element == Element::Bool)
    buffer->bools[position] = value != 0;
  else
    buffer->ints[position] = wrapTo(element, toInteger(value, element));
}

void HostTensor::setFrom(int64_t position, const HostTensor &other,
                         int64_t from) {
  if (other.holdsFloats())
    setFloat(position, other.buffer->floats[from]);
  else if (holdsFloats())
    buffer->floats[position] =
        roundInteger(element, other.intAt(from), other.element == Element::U64);
  else
    setInt(position, other.intAt(from));
}

HostTensor leastOf(Element type) {
  HostTensor result(type, {});
  if (isFloat(type))
    result.setFloat(0, -std::numeric_limits<double>::infinity());
  else if (type == Element::I8 || type == Element::I16 ||
           type == Element::I32 || type == Element::I64)
    result.setInt(0, std::numeric_limits<int64_t>::min() >>
                         (64 - 8 * byteSize(type)));
  return result;
}

HostTensor greatestOf(Element type) {
  HostTensor result(type, {});
  if (isFloat(type))
    result.setFloat(0, std::numeric_limits<double>::infinity());
  else if (type == Element::I8 || type == Element::I16 ||
           type == Element::I32 || type == Element::I64)
    result.setInt(0, std::numeric_limits<int64_t>::max() >>
                         (64 - 8 * byteSize(type)));
  else
    result.setInt(0, -1); // wraps: all bits; true
  return result;
}

llvm::Expected<HostTensor> HostTensor::fromBytes(Element type,
                                                 ArrayRef<int64_t> shape,
                                                 llvm::StringRef bytes) {
  int64_t count = product(shape), width = byteSize(type);
  if (!(isFloat(type) || isInteger(type)))
    return reason("elements of type " + nameOf(type) + " are not supported");
  if (count > kMaxStored)
    return reason("it has too many elements to evaluate (" + Twine(count) +
                  ")");
  if (int64_t(bytes.size()) != count * width)
    return reason("it holds " + Twine(bytes.size()) + " bytes, expected " +
                  Twine(count * width));
  HostTensor tensor(type, shape);
  const char *data = bytes.data();
  using llvm::support::endian::read;
  constexpr auto little = llvm::endianness::little;
  for (int64_t i = 0; i < count; ++i) {
    const char *at = data + i * width;
    switch (type) {
    case Element::F32:
      tensor.buffer->floats[i] =
          llvm::bit_cast<float>(read<uint32_t>(at, little));
      break;
    case Element::F64:
      tensor.buffer->floats[i] =
          llvm::bit_cast<double>(read<uint64_t>(at, little));
      break;
    case Element::BF16:
      tensor.buffer->floats[i] = llvm::bit_cast<float>(
          static_cast<uint32_t>(read<uint16_t>(at, little)) << 16);
      break;
    case Element::F16:
      tensor.buffer->floats[i] = throughFormat(
          llvm::APFloat(llvm::APFloat::IEEEhalf(),
                        llvm::APInt(16, read<uint16_t>(at, little))),
          llvm::APFloat::IEEEdouble());
      break;
    case Element::Bool:
      tensor.buffer->bools[i] = *at != 0;
      break;
    default: {
      uint64_t value = width == 1   ? uint8_t(*at)
                       : width == 2 ? read<uint16_t>(at, little)
                       : width == 4 ? read<uint32_t>(at, little)
                                    : read<uint64_t>(at, little);
      tensor.setInt(i, static_cast<int64_t>(value));
    }
    }
  }
  return tensor;
}

} // namespace cleave::importer
