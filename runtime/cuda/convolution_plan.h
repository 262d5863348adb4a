// Properties of a convolution on a device that are known without one, because
// the compiler plans its workspace.
#ifndef CLEAVE_RUNTIME_CUDA_CONVOLUTION_PLAN_H
#define CLEAVE_RUNTIME_CUDA_CONVOLUTION_PLAN_H

#include "cleave/program.h"

namespace cleave::cuda {

// The convolution as one matrix product per group, as the runtime's kernels
// compute it.
struct ConvolutionProduct {
  int64_t rows = 0, columns = 0, depth = 0;

  int64_t rowTiles() const;
  int64_t columnTiles() const;
};
ConvolutionProduct productOf(const program::Convolution &convolution);

// Whether all indices of the kernels and of their blocks fit into 31 bits.
bool fitsKernels(const program::Convolution &convolution);

// Bytes for engines of cuDNN: those that keep x, w and y with channels
// innermost, in units of 8, and of gradients of filters some parts of the sums,
// in f32. Where that would be more than 1 GiB, little: then engines that take
// the arrays as they are do it. 0 where cuDNN is not asked.
int64_t dnnConvolutionBytes(const program::Convolution &convolution);

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_CONVOLUTION_PLAN_H
