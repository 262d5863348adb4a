// Decides whether cuDNN may compute an attention command, and into how many
// parts the command is divided so that its workspace is bounded. This code does
// not need cuDNN, because the compiler uses it to plan the workspace.
#ifndef CLEAVE_RUNTIME_CUDA_ATTENTION_CUT_H
#define CLEAVE_RUNTIME_CUDA_ATTENTION_CUT_H

#include "cleave/program.h"

#include <optional>
#include <string>

namespace cleave::cuda {

// The mask of an attention: which keys a query sees. If `isCausal`, query i
// sees the keys up to i + `shift`, and if `window` is not 0, only the last
// `window` of these. Otherwise it sees all keys.
struct AttentionDiagonal {
  bool isCausal = false;
  int64_t shift = 0, window = 0;
};

// Returns the mask of an attention command as AttentionDiagonal. Returns
// nullopt if cuDNN does not support the mask, with the reason in `why`.
std::optional<AttentionDiagonal> diagonalOf(const program::Attention &attention,
                                            std::string &why);

// Divides attention into parts of `batch` samples and `heads` KV heads each.
// The parts run one after the other and use the same scratch memory. The
// scratch memory holds sum(dO * o) of every query of the part (backward pass
// only), then the workspace of cuDNN's engines. Both areas begin at multiples
// of 256 bytes.
struct AttentionCut {
  int64_t batch = 0, heads = 0;
  int64_t sumBytes = 0, engineBytes = 0;

  int64_t bytes() const { return sumBytes + engineBytes; }
};

inline constexpr int64_t enoughCutBytes = int64_t(256) << 20;

// Returns the division into the fewest parts that need at most `enough` bytes
// of scratch memory each. If there is no such division, returns the one with
// the smallest parts, or nullopt if even its parts need more than 1 GiB each.
std::optional<AttentionCut> cutOf(const program::Attention &attention,
                                  std::string &why,
                                  int64_t enough = enoughCutBytes);

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_ATTENTION_CUT_H
