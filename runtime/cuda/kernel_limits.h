// The limits of the runtime's CUDA kernels and the workspace that they need.
// This header needs no CUDA toolkit, because the compiler includes it, too.
#ifndef CLEAVE_RUNTIME_CUDA_KERNEL_LIMITS_H
#define CLEAVE_RUNTIME_CUDA_KERNEL_LIMITS_H

#include <cstdint>

namespace cleave::cuda {

// `countedBytes`: the shared memory of a block for the counters of a grouped
// product, which count the rows that choose each matrix. `mostMatrices`: the
// largest number of matrices whose counters fit into it.
inline constexpr int64_t countedBytes = 96 << 10;
inline constexpr int64_t mostMatrices = countedBytes / 8 - 1;

// The largest number of features of an attention head that the kernels support.
inline constexpr int64_t mostFeatures = 256;

// The number of 64-bit entries in GroupTables (kernels/arguments.h) of a
// grouped product: where the rows and the tiles of each matrix end, and the
// offsets of each row in both row operands.
inline int64_t groupTableNumbers(int64_t matrices, int64_t rows) {
  return 2 * (matrices + 1) + 2 * rows;
}

inline int64_t roundedTo64(int64_t bytes) { return (bytes + 63) / 64 * 64; }

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_KERNEL_LIMITS_H
