//===- Array.h - arrays of the host part and their element types ----------===//
#ifndef CLEAVE_IO_ARRAY_H
#define CLEAVE_IO_ARRAY_H

#include "cleave/manifest.h" // elementSize

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cleave {

/// A dense row-major array that owns its bytes. Element types are spelled as
/// in the manifest.
struct Array {
  std::string dtype;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;

  int64_t elements() const;
  template <typename T> T *as() { return reinterpret_cast<T *>(bytes.data()); }
  template <typename T> const T *as() const {
    return reinterpret_cast<const T *>(bytes.data());
  }
};

/// An array whose bytes someone else owns. The bytes need not be aligned.
struct ArrayView {
  std::string dtype;
  std::vector<int64_t> shape;
  const std::byte *data = nullptr;

  ArrayView() = default;
  ArrayView(const Array &array)
      : dtype(array.dtype), shape(array.shape), data(array.bytes.data()) {}
  int64_t elements() const;
  size_t byteSize() const { return elements() * elementSize(dtype); }
};

Array makeArray(std::string_view dtype, std::vector<int64_t> shape);

/// Returns a text like "[2, 3]".
std::string shapeToString(const std::vector<int64_t> &shape);

bool isInteger(std::string_view dtype); ///< i8 ... u64, not i1
bool isFloat(std::string_view dtype);

/// Returns one element of an array of any integer type (or i1).
int64_t integerAt(std::string_view dtype, const std::byte *data, int64_t index);

/// Converts `count` elements. Conversions between floating types round to
/// nearest even; conversions between integer types keep the value, and an
/// integer that does not fit throws InputError naming `what`. Conversions
/// between floating and integer types throw InputError.
void convertElements(std::string_view from, const std::byte *source,
                     std::string_view to, std::byte *target, int64_t count,
                     const std::string &what);

/// Returns the index of the first element that is finite but becomes infinite
/// if it is converted to the type `to`; -1 if there is none.
int64_t firstBeyond(std::string_view from, const std::byte *data, int64_t count,
                    std::string_view to);

/// Returns the index of the first element that is not finite, or -1. Integers
/// are always finite.
int64_t firstNonFinite(std::string_view dtype, const std::byte *data,
                       int64_t count);

} // namespace cleave

#endif // CLEAVE_IO_ARRAY_H
