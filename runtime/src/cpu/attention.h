// Blockwise attention with online softmax: never the whole score matrix.
#ifndef CLEAVE_RUNTIME_CPU_ATTENTION_H
#define CLEAVE_RUNTIME_CPU_ATTENTION_H

#include "cleave/program.h"

#include <atomic>
#include <functional>

namespace cleave {

struct AttentionBuffers {
  const void *q = nullptr, *k = nullptr, *v = nullptr;
  void *o = nullptr, *lse = nullptr; // written forward, read backward
  const void *dO = nullptr;
  void *dq = nullptr, *dk = nullptr, *dV = nullptr;
  const void *bias = nullptr;
  const int64_t *queryPositions = nullptr, *keyPositions = nullptr;
  const int64_t *querySegments = nullptr, *keySegments = nullptr;
  const uint8_t *keyMask = nullptr;
  const int64_t *dropoutKeys = nullptr;
  const int64_t *queryIndices = nullptr, *keyIndices = nullptr;
  void *workspace = nullptr; // attentionWorkspace() bytes, aligned to 64
  // Every launch adds the floating-point operations of the blocks of scores
  // that it computed.
  std::atomic<int64_t> *flops = nullptr;
};

// Throws Error when it is not supported.
std::function<void()> makeAttention(const program::Attention &attention,
                                    const AttentionBuffers &buffers,
                                    int threads);

} // namespace cleave

#endif // CLEAVE_RUNTIME_CPU_ATTENTION_H
