// Attention as a graph of cuDNN's.
#ifndef CLEAVE_RUNTIME_CUDA_DNN_ATTENTION_H
#define CLEAVE_RUNTIME_CUDA_DNN_ATTENTION_H

#include "attention_cut.h"
#include "dnn_graph.h"

namespace cleave::cuda {

// By what a plan of attention knows its tensors and numbers.
enum DnnAttentionId : int64_t {
  dnnQ = 1,
  dnnK,
  dnnV,
  dnnO,
  dnnLse,
  dnnDO,
  dnnDq,
  dnnDk,
  dnnDv,
  dnnSums,   // of the gradient: dO o, [batch, head, query, 1] in f32
  dnnScale,  // f32
  dnnHidden, // f32: the score of a key that is not seen
  dnnOne,    // f32
  dnnShift,  // i32, of the diagonal
  dnnWindow, // f32
};

// The graph that cuDNN's engines know as attention, or as its gradient in the
// form that NVIDIA calls deterministic: dq is one product, not atomic
// additions. Throws DnnRefusal where an array is placed otherwise than cuDNN
// wants it.
void buildDnnAttention(DnnGraph &graph, const program::Attention &attention,
                       const AttentionDiagonal &diagonal);

// Throws DnnRefusal where cuDNN or the device is not one that this is known of.
void checkDnnTarget(const DnnTarget &target);

// The engine to ask for by number; none: heuristics know.
std::optional<DnnEngine> dnnEngineFor(const DnnTarget &target,
                                      const program::Attention &attention);

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_DNN_ATTENTION_H
