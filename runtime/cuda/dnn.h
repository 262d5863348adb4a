// Attention and convolutions by cuDNN, if it has some with the same meaning.
#ifndef CLEAVE_RUNTIME_CUDA_DNN_H
#define CLEAVE_RUNTIME_CUDA_DNN_H

#include "attention_cut.h"
#include "kernels.h"

namespace cleave::cuda {

// Nothing where cuDNN does not do it, `why` says why not; makeAttention() does
// it then. Plans are made here, once for all commands of the same sizes on a
// device. Takes attentionWorkspace() bytes of workspace, in parts of `enough`
// bytes each (attention_cut.h).
Enqueue makeDnnAttention(Device &device, const program::Attention &attention,
                         const AttentionBuffers &buffers, std::string &why,
                         int64_t enough = enoughCutBytes);

// The same of a convolution; takes convolutionWorkspace() bytes. Operands of
// f32 may be rounded to TF32 with `tf32` only, or where that changes nothing.
Enqueue makeDnnConvolution(Device &device,
                           const program::Convolution &convolution,
                           const ConvolutionBuffers &buffers, bool tf32,
                           std::string &why);

// Whether there is a cuDNN for the device; else `why` says what is missing.
bool hasDnn(Device &device, std::string &why);

// By cuDNN or by kernels of the runtime.
inline Enqueue makeBestAttention(Device &device,
                                 const program::Attention &attention,
                                 const AttentionBuffers &buffers) {
  std::string why;
  if (Enqueue enqueue = makeDnnAttention(device, attention, buffers, why))
    return enqueue;
  return makeAttention(Kernels::of(device), attention, buffers);
}
inline Enqueue makeBestConvolution(Device &device,
                                   const program::Convolution &convolution,
                                   const ConvolutionBuffers &buffers,
                                   bool tf32) {
  std::string why;
  if (Enqueue enqueue =
          makeDnnConvolution(device, convolution, buffers, tf32, why))
    return enqueue;
  return makeConvolution(Kernels::of(device), convolution, buffers);
}

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_DNN_H
