// Attention and convolutions by cuDNN, used where cuDNN computes the same
// function as program::Attention or program::Convolution.
#ifndef CLEAVE_RUNTIME_CUDA_DNN_H
#define CLEAVE_RUNTIME_CUDA_DNN_H

#include "attention_cut.h"
#include "kernels.h"

namespace cleave::cuda {

// Returns a command that computes attention by cuDNN. If cuDNN does not support
// this attention, returns an empty function, with the reason in `why`, and the
// caller uses makeAttention(). One plan serves all commands of the same sizes
// on a device. The command needs attentionWorkspace() bytes of workspace. If
// the whole attention would need more than `enough` bytes, it is computed in
// several parts (attention_cut.h).
Enqueue makeDnnAttention(Device &device, const program::Attention &attention,
                         const AttentionBuffers &buffers, std::string &why,
                         int64_t enough = enoughCutBytes);

// Returns a call that computes a convolution by cuDNN, or an empty function
// with the reason in `why`. The call needs convolutionWorkspace() bytes of
// workspace. f32 operands are rounded to TF32 only if `tf32` is set, or if all
// their values are bf16 values, which TF32 represents exactly.
Enqueue makeDnnConvolution(Device &device,
                           const program::Convolution &convolution,
                           const ConvolutionBuffers &buffers, bool tf32,
                           std::string &why);

// Returns whether cuDNN can be used on the device; if not, `why` says what is
// missing.
bool hasDnn(Device &device, std::string &why);

// Returns attention or a convolution by cuDNN if possible, else by kernels of
// the runtime.
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
