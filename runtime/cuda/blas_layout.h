// A product as cuBLASLt takes it: matrices whose columns are contiguous.
#ifndef CLEAVE_RUNTIME_CUDA_BLAS_LAYOUT_H
#define CLEAVE_RUNTIME_CUDA_BLAS_LAYOUT_H

#include "cleave/program.h"

#include <optional>
#include <vector>

namespace cleave::cuda {

// A matrix as it is stored: element [i, j] at i + j * leading. `isTransposed`:
// it is the operand's transpose.
struct StoredMatrix {
  bool isTransposed = false;
  int64_t rows = 0, columns = 0, leading = 0;
  int64_t stride = 0; // from one of the batch to the next
};

// D = first x second for a batch of matrices. Where isSwapped, D is C's
// transpose, so first is B's and second A's, and the bias runs along a column
// of D; else D is C.
struct BlasLayout {
  bool isSwapped = false;
  StoredMatrix first, second, result;
  int64_t batch = 1;
  // The batch is done again at these elements of a, b and c.
  struct Offsets {
    int64_t a = 0, b = 0, c = 0;
  };
  std::vector<Offsets> offsets;
};

// Nothing where cuBLASLt lacks the layout: neither rows nor columns of an
// operand are contiguous. No size is 0.
std::optional<BlasLayout> layoutOf(const program::Gemm &gemm);

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_BLAS_LAYOUT_H
