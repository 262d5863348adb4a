// Builds cuDNN graphs that compute convolutions.
#ifndef CLEAVE_RUNTIME_CUDA_DNN_CONVOLUTION_H
#define CLEAVE_RUNTIME_CUDA_DNN_CONVOLUTION_H

#include "cleave/program.h"
#include "dnn_graph.h"

namespace cleave::cuda {

// The ids of tensors in a plan of a convolution.
enum DnnConvolutionId : int64_t { dnnX = 1, dnnW, dnnY };

// Builds a graph with the convolution as its only operation. Throws DnnRefusal
// if cuDNN has no operation with the same meaning.
void buildDnnConvolution(DnnGraph &graph,
                         const program::Convolution &convolution);

// Returns the numerical notes (as cuDNN calls them) of engines that must not be
// used: engines that are not deterministic, round operands (TF32 is allowed
// with `tf32`), do not sum in f32, or use transforms (Winograd, FFT), which
// have other rounding errors than a plain sum.
DnnNotes refusedOfConvolutions(program::DType type, bool tf32);

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_DNN_CONVOLUTION_H
