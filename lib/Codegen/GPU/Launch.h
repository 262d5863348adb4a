// Distributes the iterations of a kernel plan over blocks and threads. A plan
// has one of three shapes:
//
// - Flat: consecutive threads compute consecutive vectors of elements.
// - Rows: `threads` threads (a power of two) compute a row. A block computes
//   several rows if rows are short. Several blocks share a row if the row is
//   long and there is no reduction along it.
// - Scatter, which adds updates to rows of the result: each warp owns some rows
//   of the result, and only this warp writes them.
//
// If a sequential reduction (a loop in a thread) is long and the kernel has few
// results, `sequence` threads share the reduction.

#ifndef CLEAVE_LIB_CODEGEN_GPU_LAUNCH_H
#define CLEAVE_LIB_CODEGEN_GPU_LAUNCH_H

#include "cleave/Fusion/KernelPlan.h"

namespace cleave::codegen {

inline constexpr int64_t kWarp = 32;

/// How threads iterate over one set of columns.
struct ColumnLaunch {
  int64_t lanes = 1;   ///< elements per access
  int64_t vectors = 1; ///< accesses per row, without a remainder
  int64_t copies = 1;  ///< vectors that a thread handles at a time
  /// True if a thread keeps its vectors of the row in registers from one loop
  /// over the columns to the next.
  bool kept = true;
};

struct Launch {
  int64_t threads = 1;  ///< per row
  int64_t rows = 1;     ///< per block
  int64_t sequence = 1; ///< threads that share a sequential reduction
  int64_t chunks = 1;   ///< blocks that share a row
  int64_t classes = 1;  ///< scatter: a warp owns the rows r with equal
                        ///< r % classes
  int64_t grid = 1;
  llvm::DenseMap<const kernels::Columns *, ColumnLaunch> columns;

  int64_t block() const { return threads * rows * sequence; }
};

Launch chooseLaunch(const kernels::KernelPlan &plan);

} // namespace cleave::codegen

#endif
