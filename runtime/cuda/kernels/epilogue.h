// Arguments of the epilogue kernels, shared by host and device.
#ifndef CLEAVE_RUNTIME_CUDA_KERNELS_EPILOGUE_H
#define CLEAVE_RUNTIME_CUDA_KERNELS_EPILOGUE_H

#include <stdint.h>

namespace cleave::cuda {

constexpr int epilogueDims = 8;
// An epilogue over `count` elements. The innermost dimension is first; strides
// are in elements.
struct EpilogueArguments {
  char *c, *preActivation;  // may be absent
  const char *bias;         // may be absent
  const char *derivativeAt; // may be absent; else C *= activation'
  int64_t count;
  int32_t dims, columnDim; // dimension of the bias; -1: none
  int32_t activation;      // program::Activation
  int64_t size[epilogueDims], stride[epilogueDims];
};

// For kernels that sum the columns of an operand: the number of columns that a
// block sums, and the number of threads that sum one column together.
constexpr int sumsColumns = 16, sumsLanes = 64;
// Arguments of the kernels that sum columns. Strides are in elements.
struct OperandSumsArguments {
  char *to;
  const char *from;
  int64_t rows, columns, rowStride, columnStride;
};

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_KERNELS_EPILOGUE_H
