// Arguments of the convolution kernels: plain data, shared by host and device.
#ifndef CLEAVE_RUNTIME_CUDA_KERNELS_CONVOLUTION_ARGUMENTS_H
#define CLEAVE_RUNTIME_CUDA_KERNELS_CONVOLUTION_ARGUMENTS_H

#include "arguments.h"

namespace cleave::cuda {

// Three spatial dimensions, outermost first; missing dimensions have size one.
struct ConvolutionGrid {
  int32_t size[3];
  Divider by[3];
  int64_t count; // of all elements
};

// The arguments of a convolution (see program::Convolution). `channels` and
// `features` are those of one group. The convolution is computed as one matrix
// product per group: the result has `rows` rows and `columns` columns, and each
// element is a sum of `depth` terms.
struct ConvolutionArguments {
  void *x, *w, *y;
  int64_t groups, channels, features;
  ConvolutionGrid input, kernel, output;
  int32_t stride[3], dilation[3], low[3];
  int64_t rows, columns, depth, rowTiles, columnTiles;
  int32_t isBf16;
};

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_KERNELS_CONVOLUTION_ARGUMENTS_H
