// Convolutions as graphs of cuDNN's.
#ifndef CLEAVE_RUNTIME_CUDA_DNN_CONVOLUTION_H
#define CLEAVE_RUNTIME_CUDA_DNN_CONVOLUTION_H

#include "cleave/program.h"
#include "dnn_graph.h"

namespace cleave::cuda {

// By what a plan of a convolution knows its tensors.
enum DnnConvolutionId : int64_t { dnnX = 1, dnnW, dnnY };

// A graph of one operation. Throws DnnRefusal where cuDNN has none that means
// the same.
void buildDnnConvolution(DnnGraph &graph,
                         const program::Convolution &convolution);

// Notes of engines that compute something else: other bits in each run,
// operands that are rounded (to TF32 they may be, with `tf32`), sums that are
// not of f32, and transforms, whose errors do not grow as those of a sum.
DnnNotes refusedOfConvolutions(program::DType type, bool tf32);

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_DNN_CONVOLUTION_H
