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

// A convolution as program::Convolution defines it, with the channels and
// features of one group. As a matrix product it has, for each group, `rows`,
// `columns`, and sums of `depth` terms.
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
