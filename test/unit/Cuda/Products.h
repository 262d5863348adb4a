// Products on the simulated CUDA library, and their operands.
#ifndef CLEAVE_UNITTEST_CUDA_PRODUCTS_H
#define CLEAVE_UNITTEST_CUDA_PRODUCTS_H

#include "Helpers.h"
#include "Recorded.h"

#include "blas.h"
#include "blas_layout.h"
#include "cleave/workspace.h"

#include <cstring>

namespace cleave::test {

class Products : public Recorded {
protected:
  using DType = program::DType;
  using Gemm = program::Gemm;
  using MatrixRef = program::MatrixRef;

  // An operand in the memory of a simulated device, which the host can access,
  // too.
  struct Operand {
    cuda::DeviceMemory memory;
    std::vector<char> copy; // on the host
    char *at(int64_t offset) const { return memory.data() + offset; }
  };

  static int64_t span(const Gemm &gemm, const MatrixRef &ref, int64_t rows,
                      int64_t columns) {
    int64_t last = (rows - 1) * ref.rowStride + (columns - 1) * ref.colStride;
    for (size_t i = 0; i < gemm.batch.size(); ++i)
      last += (gemm.batch[i] - 1) * ref.batchStrides[i];
    return last + 1;
  }

  static Operand make(DType type, int64_t count, int64_t shift, int seed) {
    int64_t size = sizeOf(type);
    Operand out{cuda::DeviceMemory((count + shift) * size, "an operand"), {}};
    char *data = out.at(shift * size);
    auto values = randomVector<double>(count, seed);
    for (int64_t i = 0; i < count; ++i)
      if (type == DType::F64) {
        std::memcpy(data + 8 * i, &values[i], 8);
      } else {
        float narrow = float(values[i]);
        uint32_t bits;
        std::memcpy(&bits, &narrow, 4);
        if (type == DType::BF16)
          bits >>= 16;
        std::memcpy(data + size * i, &bits, size);
      }
    out.copy.assign(data, data + count * size);
    return out;
  }

  static double load(const char *data, DType type, int64_t i) {
    if (type == DType::F64) {
      double x;
      std::memcpy(&x, data + 8 * i, 8);
      return x;
    }
    uint32_t bits = 0;
    if (type == DType::BF16) {
      std::memcpy(reinterpret_cast<char *>(&bits) + 2, data + 2 * i, 2);
    } else {
      std::memcpy(&bits, data + 4 * i, 4);
    }
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
  }

  struct Counts {
    int64_t products, launches;
  };

  static MatrixRef rowMajor(int64_t columns, std::vector<int64_t> batch = {}) {
    return {{0, 0, {}}, std::move(batch), columns, 1};
  }
  static Gemm plain(DType type, int64_t m, int64_t n, int64_t k) {
    Gemm gemm;
    gemm.dtype = type;
    gemm.m = m, gemm.n = n, gemm.k = k;
    gemm.a = rowMajor(k), gemm.b = rowMajor(n), gemm.c = rowMajor(n);
    return gemm;
  }
};

} // namespace cleave::test

#endif // CLEAVE_UNITTEST_CUDA_PRODUCTS_H
