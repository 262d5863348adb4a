// Blockwise attention with online softmax. The whole score matrix is never in
// memory.
#ifndef CLEAVE_RUNTIME_CPU_ATTENTION_H
#define CLEAVE_RUNTIME_CPU_ATTENTION_H

#include "cleave/program.h"
#include "command_buffers.h"

#include <atomic>
#include <functional>

namespace cleave {

// Throws Error when it is not supported.
std::function<void()> makeAttention(const program::Attention &attention,
                                    const AttentionBuffers &buffers,
                                    int threads);

} // namespace cleave

#endif // CLEAVE_RUNTIME_CPU_ATTENTION_H
