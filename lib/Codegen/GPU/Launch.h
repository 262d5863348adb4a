// Distributes the iterations of a plan over blocks and threads.
//
//   Flat      consecutive threads take consecutive vectors of elements
//   Rows      `threads` threads per row, a power of two; several rows per block
//             if rows are short, several blocks per row if there is no
//             reduction along it
//   Scatter   each warp owns rows of the table
//
// Long sequential reductions with few results are shared by `sequence` threads.

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
  /// True if a thread holds all its vectors of the row in registers, from one
  /// loop over the columns to the next.
  bool kept = true;
};

struct Launch {
  int64_t threads = 1;  ///< per row
  int64_t rows = 1;     ///< per block
  int64_t sequence = 1; ///< threads that share a sequential reduction
  int64_t chunks = 1;   ///< blocks that share a row
  int64_t classes = 1;  ///< scatter: rows are owned by remainder
  int64_t grid = 1;
  llvm::DenseMap<const kernels::Columns *, ColumnLaunch> columns;

  int64_t block() const { return threads * rows * sequence; }
};

Launch chooseLaunch(const kernels::KernelPlan &plan);

} // namespace cleave::codegen

#endif
