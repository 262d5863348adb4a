// Computes how many bytes an operand spans, with checks for overflow.
#ifndef CLEAVE_RUNTIME_SPAN_H
#define CLEAVE_RUNTIME_SPAN_H

#include "error.h"

#include <array>
#include <cstdint>
#include <string>

namespace cleave {

[[noreturn]] inline void bad(const std::string &message) {
  fail(CLEAVE_BAD_PROGRAM, message);
}

// Returns the number of bytes from the first element of a strided array to the
// end of its last element.
template <class Dims, class Strides>
int64_t spanOf(const Dims &dims, const Strides &strides, int64_t elementSize) {
  __int128 last = 0;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < 0)
      bad("negative size " + std::to_string(dims[i]));
    if (strides[i] < 0)
      bad("negative stride " + std::to_string(strides[i]));
    if (dims[i] == 0)
      return 0;
    last += __int128(dims[i] - 1) * strides[i];
    if (last > INT64_MAX / 16)
      bad("a buffer is larger than memory can be");
  }
  return (int64_t(last) + 1) * elementSize;
}

inline int64_t spanOf(int64_t count, int64_t elementSize) {
  return spanOf(std::array{count}, std::array<int64_t, 1>{1}, elementSize);
}

inline int64_t checkedProduct(int64_t a, int64_t b) {
  int64_t product;
  if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product))
    bad("size " + std::to_string(a) + " x " + std::to_string(b) +
        " is out of range");
  return product;
}

} // namespace cleave

#endif // CLEAVE_RUNTIME_SPAN_H
