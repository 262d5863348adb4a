// Which attention cuDNN does as it is meant, and in how many parts, so that its
// scratch memory is bounded. Known without cuDNN: compilers plan that memory.
#ifndef CLEAVE_RUNTIME_CUDA_ATTENTION_CUT_H
#define CLEAVE_RUNTIME_CUDA_ATTENTION_CUT_H

#include "cleave/program.h"

#include <optional>
#include <string>

namespace cleave::cuda {

// Which keys a query sees: all, or those up to a diagonal that begins at key
// `shift`, of which the last `window` ones unless that is 0.
struct AttentionDiagonal {
  bool isCausal = false;
  int64_t shift = 0, window = 0;
};

// None where cuDNN has no such attention, `why` says what.
std::optional<AttentionDiagonal> diagonalOf(const program::Attention &attention,
                                            std::string &why);

// Parts of `batch` samples and `heads` kv heads, one after the other, each with
// the same scratch memory: first the sums of dO o of its gradient, then what
// cuDNN's engines want. Both begin at multiples of 256.
struct AttentionCut {
  int64_t batch = 0, heads = 0;
  int64_t sumBytes = 0, engineBytes = 0;

  int64_t bytes() const { return sumBytes + engineBytes; }
};

inline constexpr int64_t enoughCutBytes = int64_t(256) << 20;

// As few parts as take no more than `enough`, or the smallest ones. None where
// these would take more than 1 GiB.
std::optional<AttentionCut> cutOf(const program::Attention &attention,
                                  std::string &why,
                                  int64_t enough = enoughCutBytes);

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_ATTENTION_CUT_H
