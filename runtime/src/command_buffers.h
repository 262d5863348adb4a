// The addresses of a command's operands in memory, for every backend. A null
// pointer means that the command does not have the operand.
#ifndef CLEAVE_RUNTIME_COMMAND_BUFFERS_H
#define CLEAVE_RUNTIME_COMMAND_BUFFERS_H

#include <atomic>
#include <cstdint>

namespace cleave {

struct GemmBuffers {
  const void *a = nullptr, *b = nullptr, *bias = nullptr;
  const void *derivativeAt = nullptr;
  void *c = nullptr, *preActivation = nullptr, *sums = nullptr;
  void *workspace = nullptr; // gemmWorkspace() bytes, aligned to 64
};

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
  // A counter to which every run adds the number of floating-point operations
  // of the score blocks that it computed. Masked blocks are skipped.
  std::atomic<int64_t> *flops = nullptr;
};

struct GroupedBuffers {
  void *a = nullptr, *c = nullptr, *w = nullptr;
  const int64_t *ids = nullptr;
  void *workspace = nullptr; // groupedWorkspace() bytes, aligned to 64
};

struct PositionInExpertBuffers {
  const int64_t *ids = nullptr, *positions = nullptr;
  const int64_t *loads = nullptr, *samples = nullptr; // null: none
  int64_t *result = nullptr, *scratch = nullptr;
};

// The kind of convolution determines which of x, w and y is written.
struct ConvolutionBuffers {
  void *x = nullptr, *w = nullptr, *y = nullptr;
  void *workspace = nullptr; // convolutionWorkspace() bytes
};

struct CopyBuffers {
  char *dst = nullptr, *src = nullptr;
};

struct PlanRowsBuffers {
  const int64_t *ids = nullptr;
  int64_t *sources = nullptr, *placeOf = nullptr, *sent = nullptr,
          *counts = nullptr;
};

struct SortRowsBuffers {
  const int64_t *ids = nullptr;
  int64_t *order = nullptr, *placeOf = nullptr, *sorted = nullptr;
};

} // namespace cleave

#endif // CLEAVE_RUNTIME_COMMAND_BUFFERS_H
