// What the runtime's kernels can do, and the scratch memory that they take;
// known without a toolkit.
#ifndef CLEAVE_RUNTIME_CUDA_KERNEL_LIMITS_H
#define CLEAVE_RUNTIME_CUDA_KERNEL_LIMITS_H

#include <cstdint>

namespace cleave::cuda {

// Groups that a block can count its rows for, and matrices to choose from.
inline constexpr int64_t countedBytes = 96 << 10;
inline constexpr int64_t mostMatrices = countedBytes / 8 - 1;

// Of a head of attention.
inline constexpr int64_t mostFeatures = 256;

// 64-bit numbers of the tables of a grouped product.
inline int64_t groupTableNumbers(int64_t matrices, int64_t rows) {
  return 2 * (matrices + 1) + 2 * rows;
}

inline int64_t roundedTo64(int64_t bytes) { return (bytes + 63) / 64 * 64; }

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_KERNEL_LIMITS_H
