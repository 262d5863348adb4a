// bf16 elements, rounding to TF32, and conversions of elements of any type to
// floats.
#ifndef CLEAVE_TEST_GPU_RECORDER_NUMBERS_H
#define CLEAVE_TEST_GPU_RECORDER_NUMBERS_H

#include <cstdint>
#include <cstring>

namespace recorder {

inline float widen(uint16_t x) {
  uint32_t bits = uint32_t(x) << 16;
  float out;
  std::memcpy(&out, &bits, 4);
  return out;
}

// Rounds to the nearest bf16, ties to even.
inline uint16_t narrow(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if (x != x)
    return 0x7fc0;
  return uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// Rounds to the nearest TF32, which has 10 bits after the point.
inline float toTf32(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if (x - x != 0)
    return x;
  bits = (bits + 0xfff + ((bits >> 13) & 1)) & ~uint32_t(0x1fff);
  std::memcpy(&x, &bits, 4);
  return x;
}

} // namespace recorder

#endif // CLEAVE_TEST_GPU_RECORDER_NUMBERS_H
