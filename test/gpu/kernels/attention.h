// The operands and the expected results of attention.
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

// Computes attention as program.h defines it, in double precision. With
// x.backward, computes the gradients from the arrays o and lse.
AttentionResults referenceAttention(const AttentionArrays &in);

} // namespace cleave::gpu

#endif // CLEAVE_TEST_GPU_KERNELS_ATTENTION_H
