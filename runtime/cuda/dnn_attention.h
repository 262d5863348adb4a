// Builds cuDNN graphs that compute attention.
#ifndef CLEAVE_RUNTIME_CUDA_DNN_ATTENTION_H
#define CLEAVE_RUNTIME_CUDA_DNN_ATTENTION_H

#include "attention_cut.h"
#include "dnn_graph.h"

namespace cleave::cuda {

// The ids of tensors and scalars in a plan of attention.
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
  dnnSums,   // backward: sum(dO * o), f32 [batch, head, query, 1]
  dnnScale,  // f32
  dnnHidden, // f32: the score of a masked key
  dnnOne,    // f32
  dnnShift,  // i32: AttentionDiagonal::shift
  dnnWindow, // f32: AttentionDiagonal::window
};

// Builds the graph that cuDNN's engines recognize as attention, or as its
// gradient in the form that NVIDIA calls deterministic: dq is computed by one
// product, without atomic additions. Throws DnnRefusal if cuDNN does not
// support the layout of an array.
void buildDnnAttention(DnnGraph &graph, const program::Attention &attention,
                       const AttentionDiagonal &diagonal);

// Throws DnnRefusal if our graphs of attention were not tested with this
// version of cuDNN or on this device.
void checkDnnTarget(const DnnTarget &target);

// Returns the engine and settings that must be requested by number; nullopt if
// cuDNN's heuristics choose the engine.
std::optional<DnnEngine> dnnEngineFor(const DnnTarget &target,
                                      const program::Attention &attention);

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_DNN_ATTENTION_H
