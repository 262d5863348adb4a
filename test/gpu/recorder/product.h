// A matrix product with the arguments that cuBLASLt takes, computed by loops.
#ifndef CLEAVE_TEST_GPU_RECORDER_PRODUCT_H
#define CLEAVE_TEST_GPU_RECORDER_PRODUCT_H

#include "report.h"

#include <cublasLt.h>

#include <cstdint>

namespace recorder {

struct Layout {
  cudaDataType type = CUDA_R_32F;
  int32_t order = CUBLASLT_ORDER_COL;
  uint64_t rows = 0, columns = 0;
  int64_t leading = 0, stride = 0;
  int32_t batch = 1;

  int64_t at(int64_t row, int64_t column) const {
    return order == CUBLASLT_ORDER_COL ? row + column * leading
                                       : row * leading + column;
  }
  // The number of elements from the first to the last one of the matrix or
  // batch, including gaps.
  int64_t span() const {
    return (batch - 1) * stride + at(int64_t(rows) - 1, int64_t(columns) - 1) +
           1;
  }
};

struct Product {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType scale = CUDA_R_32F;
  bool transposeA = false, transposeB = false;
  int32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  char *bias = nullptr; // or its gradient
  char *aux = nullptr;
  int64_t auxLeading = 0, auxStride = 0;
  Layout a, b, c, d;
  const char *aAt = nullptr, *bAt = nullptr, *cAt = nullptr;
  char *dAt = nullptr;
  double alpha = 1, beta = 0;
  bool roundsParts = false; // parts of sums have the type of the result

  int64_t depth() const { return int64_t(transposeA ? a.rows : a.columns); }
  bool has(int32_t part) const { return epilogue & part; }
  // Return whether the epilogue also computes the gradient of a bias, that is,
  // the sums of A's rows or of B's columns.
  bool sumsA() const { return epilogue == CUBLASLT_EPILOGUE_BGRADA; }
  bool sumsB() const { return epilogue == CUBLASLT_EPILOGUE_BGRADB; }

  // Returns NULL if cuBLASLt's documentation allows the product, otherwise the
  // reason why it does not.
  const char *findFault() const;
  std::vector<Access> accesses() const;
  void run() const;
};

inline int64_t sizeOf(cudaDataType type) {
  return type == CUDA_R_64F ? 8 : type == CUDA_R_16BF ? 2 : 4;
}

} // namespace recorder

#endif // CLEAVE_TEST_GPU_RECORDER_PRODUCT_H
