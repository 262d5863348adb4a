// Properties of a convolution on a CUDA device that can be computed without a
// device. The compiler needs them to plan the workspace.
#ifndef CLEAVE_RUNTIME_CUDA_CONVOLUTION_PLAN_H
#define CLEAVE_RUNTIME_CUDA_CONVOLUTION_PLAN_H

#include "cleave/program.h"

namespace cleave::cuda {

// The sizes of the matrix product (one per group) by which the runtime's
// kernels compute the convolution.
struct ConvolutionProduct {
  int64_t rows = 0, columns = 0, depth = 0;

  int64_t rowTiles() const;
  int64_t columnTiles() const;
};
ConvolutionProduct productOf(const program::Convolution &convolution);

// Returns whether all indices that the runtime's CUDA kernels compute for this
// convolution, and the number of their thread blocks, fit into 31 bits.
bool fitsKernels(const program::Convolution &convolution);

// Returns the bytes of workspace for cuDNN's engines; 0 if cuDNN is not used.
// Some engines convert x, w and y so that channels are innermost, in blocks of
// 8; engines for filter gradients also keep several partial sums in f32. If the
// converted arrays and partial sums would exceed 1 GiB, the workspace is only
// for engines that read the arrays directly.
int64_t dnnConvolutionBytes(const program::Convolution &convolution);

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_CONVOLUTION_PLAN_H
