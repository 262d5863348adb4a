// The random generator SplitMix64 (Steele, Lea, Flood, 2014), which gives the
// same numbers on every machine.

#ifndef CLEAVE_IO_SPLITMIX_H
#define CLEAVE_IO_SPLITMIX_H

#include <cstdint>

namespace cleave {

/// The generator adds this number to its state for each number that it draws.
inline constexpr uint64_t splitMixStep = 0x9e3779b97f4a7c15;

/// Returns the number that the generator draws in the state `x`. It depends on
/// all bits of `x`, so that `x` may also be a counter or a key.
inline uint64_t splitMix(uint64_t x) {
  x += splitMixStep;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

} // namespace cleave

#endif // CLEAVE_IO_SPLITMIX_H
