// The layout of a product in cuBLASLt's terms, in which matrices are
// column-major.
#ifndef CLEAVE_RUNTIME_CUDA_BLAS_LAYOUT_H
#define CLEAVE_RUNTIME_CUDA_BLAS_LAYOUT_H

#include "cleave/program.h"

#include <optional>
#include <vector>

namespace cleave::cuda {

// A matrix as cuBLASLt reads it: element [i, j] is at i + j * leading. With
// `isTransposed`, it is the transpose of the operand.
struct StoredMatrix {
  bool isTransposed = false;
  int64_t rows = 0, columns = 0, leading = 0;
  int64_t stride = 0; // between matrices of the batch
};

// The product D = first x second for a batch of matrices. If isSwapped, D is
// the transpose of C, `first` is B, `second` is A, and the bias runs along a
// column of D. Otherwise D is C.
struct BlasLayout {
  bool isSwapped = false;
  StoredMatrix first, second, result;
  int64_t batch = 1;
  // The product is computed once for each entry, with a, b and c displaced by
  // the entry's offsets in elements.
  struct Offsets {
    int64_t a = 0, b = 0, c = 0;
  };
  std::vector<Offsets> offsets;
};

// Returns nullopt if cuBLASLt cannot read the layout, because neither rows nor
// columns of an operand are contiguous. No size may be 0.
std::optional<BlasLayout> layoutOf(const program::Gemm &gemm);

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_BLAS_LAYOUT_H
