// Philox-4x32-10 (Salmon et al., 2011) for attention dropout: decides which
// attention weights are kept. The header is compiled for CPUs and for devices;
// the including file may define the function qualifiers. By default functions
// have internal linkage, because files may be compiled for different
// processors.

#ifndef CLEAVE_PHILOX_H
#define CLEAVE_PHILOX_H

#include <stdint.h>

#ifndef CLEAVE_PHILOX_FUNCTION
#define CLEAVE_PHILOX_FUNCTION [[maybe_unused]] static inline
#endif

namespace cleave::philox {

constexpr int rounds = 10;
constexpr uint32_t multiplier0 = 0xD2511F53u, multiplier1 = 0xCD9E8D57u;
constexpr uint32_t weyl0 = 0x9E3779B9u, weyl1 = 0xBB67AE85u;

struct Block {
  uint32_t words[4];
};

CLEAVE_PHILOX_FUNCTION void doRound(uint32_t &c0, uint32_t &c1, uint32_t &c2,
                                    uint32_t &c3, uint32_t key0,
                                    uint32_t key1) {
  uint64_t a = uint64_t(multiplier0) * c0, b = uint64_t(multiplier1) * c2;
  c0 = uint32_t(b >> 32) ^ c1 ^ key0;
  c1 = uint32_t(b);
  c2 = uint32_t(a >> 32) ^ c3 ^ key1;
  c3 = uint32_t(a);
}

CLEAVE_PHILOX_FUNCTION Block blockOf(uint64_t key, Block counter) {
  uint32_t *c = counter.words;
  uint32_t key0 = uint32_t(key), key1 = uint32_t(key >> 32);
#ifdef __CUDACC__
#pragma unroll
#endif
  for (int round = 0; round < rounds; ++round) {
    doRound(c[0], c[1], c[2], c[3], key0, key1);
    key0 += weyl0, key1 += weyl1;
  }
  return counter;
}

// Philox yields blocks of four random words. Each word decides about one
// attention key (one column of the scores). For the attention key with index
// `key`, blockIndex returns the index of the block, wordIndex the index of the
// word in this block.
CLEAVE_PHILOX_FUNCTION uint32_t blockIndex(int64_t key) {
  return uint32_t(uint64_t(key) >> 2);
}
CLEAVE_PHILOX_FUNCTION int wordIndex(int64_t key) { return int(key & 3); }
CLEAVE_PHILOX_FUNCTION uint32_t wordOf(const Block &block, int64_t key) {
  // Does not index the array, so that the words can stay in registers.
  uint32_t low = key & 1 ? block.words[1] : block.words[0];
  uint32_t high = key & 1 ? block.words[3] : block.words[2];
  return key & 2 ? high : low;
}

// Returns the random words for one query and one block of four attention keys.
// `key` is the key of the random number generator.
CLEAVE_PHILOX_FUNCTION Block weightsOf(uint64_t key, int64_t query,
                                       uint32_t keys) {
  return blockOf(key, Block{{keys, uint32_t(uint64_t(query)), 0, 0}});
}

// Returns the least random word for which an attention weight is kept at
// dropout probability p: the weight is kept if word / 2^32 >= p, compared in
// integers. For p close to 1 the result may be 2^32, so that no word reaches
// it.
CLEAVE_PHILOX_FUNCTION uint64_t leastKept(double p) {
  double words = p * 4294967296.0;
  auto whole = uint64_t(words);
  return whole + (double(whole) < words);
}

} // namespace cleave::philox

#endif // CLEAVE_PHILOX_H
