// Replaces the cuDNN functions in builds without cuDNN's headers.

#include "dnn.h"

using namespace cleave;
using namespace cleave::cuda;

Enqueue cuda::makeDnnAttention(Device &, const program::Attention &,
                               const AttentionBuffers &, std::string &why,
                               int64_t) {
  why = "the runtime was built without cuDNN";
  return nullptr;
}

Enqueue cuda::makeDnnConvolution(Device &, const program::Convolution &,
                                 const ConvolutionBuffers &, bool,
                                 std::string &why) {
  why = "the runtime was built without cuDNN";
  return nullptr;
}

bool cuda::hasDnn(Device &, std::string &why) {
  why = "the runtime was built without cuDNN";
  return false;
}
