// Commands that copy and fill memory within a rank.
#ifndef CLEAVE_PROGRAM_MOVES_H
#define CLEAVE_PROGRAM_MOVES_H

#include "cleave/program/values.h"

#include <cstdint>
#include <vector>

namespace cleave::program {

// Copies elements unchanged: dst[i...] = src[i...] over `shape`.
struct Copy {
  BufferRef src, dst;
  int32_t elementSize = 1;
  std::vector<int64_t> shape, srcStrides, dstStrides;
};

// Writes `count` elements of `elementSize` (1, 2, 4 or 8) bytes. Each element
// has the low bytes of `pattern`.
struct Fill {
  BufferRef dst;
  int32_t elementSize = 4;
  int64_t count = 0;
  uint64_t pattern = 0;
};

} // namespace cleave::program

#endif // CLEAVE_PROGRAM_MOVES_H
