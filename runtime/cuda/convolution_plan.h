// Properties of a convolution on a CUDA device that can be computed without a
// device. The compiler needs them to plan the workspace.
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

// Returns whether all indices that our CUDA kernels compute for this
// convolution, and the number of their thread blocks, fit into 31 bits.
bool fitsKernels(const program::Convolution &convolution);

// Returns the workspace for cuDNN's engines in bytes. Some engines convert x, w
// and y so that channels are innermost, in units of 8; engines for filter
// gradients also keep several partial sums in f32. If that would exceed 1 GiB,
// a small workspace is returned, for engines that read the arrays directly.
// Returns 0 if cuDNN is not used.
int64_t dnnConvolutionBytes(const program::Convolution &convolution);

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_CONVOLUTION_PLAN_H
