// Attention on the CPU, computed by blocks with online softmax: the whole score
// matrix is never in memory.
#ifndef CLEAVE_RUNTIME_CPU_ATTENTION_H
#define CLEAVE_RUNTIME_CPU_ATTENTION_H

#include "cleave/program.h"
#include "command_buffers.h"

#include <atomic>
#include <functional>

namespace cleave {

// Returns a call that computes attention. Throws Error if the attention is not
// supported.
std::function<void()> makeAttention(const program::Attention &attention,
                                    const AttentionBuffers &buffers,
                                    int threads);

} // namespace cleave

#endif // CLEAVE_RUNTIME_CPU_ATTENTION_H
