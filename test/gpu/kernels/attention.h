// Attention of a check, and what it is to give.
#ifndef CLEAVE_TEST_GPU_KERNELS_ATTENTION_H
#define CLEAVE_TEST_GPU_KERNELS_ATTENTION_H

#include "harness.h"

namespace cleave::gpu {

struct AttentionArrays {
  program::Attention x;
  Array q, k, v, dO, bias, o, lse, dq, dk, dV;
  Array queryPositions, keyPositions, querySegments, keySegments, keyMask;
  Array dropoutKeys, queryIndices, keyIndices;
};

struct AttentionResults {
  std::vector<Expected> o, lse, dq, dk, dV;
};

// In double precision from what program.h says; with x.backward gradients, from
// o and lse as the arrays have them.
AttentionResults referenceAttention(const AttentionArrays &in);

} // namespace cleave::gpu

#endif // CLEAVE_TEST_GPU_KERNELS_ATTENTION_H
