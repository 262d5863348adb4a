// Attention dropout for a tile: all threads draw which weights are kept. Four
// adjacent keys use one block of random words.
#ifndef CLEAVE_RUNTIME_CUDA_KERNELS_ATTENTION_DROPOUT_H
#define CLEAVE_RUNTIME_CUDA_KERNELS_ATTENTION_DROPOUT_H

#include "attention_mask.h"

#define CLEAVE_PHILOX_FUNCTION CLEAVE_DEVICE
#include "cleave/philox.h"

namespace cleave::cuda::device {

/// The dropout mask of a block's tile, in shared memory after the data of type
/// `Shared`. Without `drops` there is no mask, and the functions do nothing.
template <bool drops, class Shared, int tile> struct KeptWeights {
  CLEAVE_DEVICE AttentionKept<tile> &kept() const {
    return *reinterpret_cast<AttentionKept<tile> *>(sharedMemory() +
                                                    sizeof(Shared));
  }

  /// Draws the dropout mask of the tile that begins at query q0 and key k0,
  /// into shared memory. The caller synchronizes the block before it reads the
  /// mask.
  CLEAVE_DEVICE void draw(const AttentionArguments &x, int64_t b, int64_t n,
                          int64_t g, int64_t q0, int64_t k0) const {
    if constexpr (drops) {
      constexpr int groups = tile / 4;
      const int64_t *strides = x.dropoutStrides;
      auto key = uint64_t(
          x.dropoutKeys[b * strides[0] + n * strides[1] + g * strides[2]]);
      for (int at = int(threadIdx.x); at < tile * groups;
           at += int(blockDim.x)) {
        int row = at / groups, group = at % groups;
        unsigned bits = 0;
        if (q0 + row < x.qLen)
          bits = drawFour(x, b, key, entryOf(x.queryIndices, b, q0 + row),
                          k0 + 4 * group);
        kept().bits[row][group] = uint8_t(bits);
      }
    }
  }

  CLEAVE_DEVICE bool has(int query, int key) const {
    if constexpr (drops)
      return kept().bits[query][key / 4] >> key % 4 & 1;
    return true;
  }

private:
  static CLEAVE_DEVICE unsigned drawFour(const AttentionArguments &x, int64_t b,
                                         uint64_t key, int64_t query,
                                         int64_t first) {
    unsigned bits = 0;
    philox::Block block{};
    uint32_t drawn = 0;
#pragma unroll 1
    for (int i = 0; i < 4 && first + i < x.kLen; ++i) {
      int64_t index = entryOf(x.keyIndices, b, first + i);
      uint32_t counter = philox::blockIndex(index);
      if (i == 0 || counter != drawn)
        block = philox::weightsOf(key, query, counter);
      drawn = counter;
      uint32_t word = philox::wordOf(block, index);
      bits |= unsigned(word >= x.leastKept) << i;
    }
    return bits;
  }
};

} // namespace cleave::cuda::device

#endif // CLEAVE_RUNTIME_CUDA_KERNELS_ATTENTION_DROPOUT_H
