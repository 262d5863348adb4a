//===- Sampling.cpp - the order of samples --------------------------------===//
#include "cleave/io/SplitMix.h"
#include "cleave/trainer/Data.h"

namespace cleave {

Permutation::Permutation(uint64_t size, uint64_t seed, uint64_t epoch)
    : size(size), key(splitMix(splitMix(seed) ^ epoch)), halfBits(1) {
  while (halfBits < 31 && (uint64_t(1) << (2 * halfBits)) < size)
    ++halfBits;
}

uint64_t Permutation::at(uint64_t index) const {
  const uint64_t mask = (uint64_t(1) << halfBits) - 1;
  // Permutes the samples. A Feistel network permutes [0, n), where n is the
  // next power of four. If its result is not the number of a sample, it is
  // applied again to that result. On average fewer than 4 applications are
  // needed.
  do {
    uint64_t left = index >> halfBits, right = index & mask;
    for (uint64_t round = 0; round < 4; ++round) {
      uint64_t next =
          left ^ (splitMix(key ^ splitMix(right + (round << 32))) & mask);
      left = right;
      right = next;
    }
    index = left << halfBits | right;
  } while (index >= size);
  return index;
}

int64_t trainingSample(int64_t number, int64_t samples, uint64_t seed) {
  Permutation order(samples, seed, number / samples);
  return static_cast<int64_t>(order.at(number % samples));
}

} // namespace cleave
