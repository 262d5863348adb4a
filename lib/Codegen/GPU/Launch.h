// How the iterations of a plan are shared out among blocks and threads.
//
//   Flat      vectors of elements, one after the other over all threads
//   Rows      `threads` threads a row, a power of two; several rows a block
//             where rows are short, several blocks a row where nothing is
//             reduced along it
//   Scatter   a warp owns rows of the table
//
// Long sequential reductions of few elements are shared by `sequence` threads.

#ifndef CLEAVE_LIB_CODEGEN_GPU_LAUNCH_H
#define CLEAVE_LIB_CODEGEN_GPU_LAUNCH_H

#include "cleave/Fusion/KernelPlan.h"

namespace cleave::codegen {

inline constexpr int64_t kWarp = 32;

/// How threads walk over one set of columns.
struct ColumnLaunch {
  int64_t lanes = 1;   ///< elements of an access
  int64_t vectors = 1; ///< accesses of a row; elements that are left come last
  int64_t copies = 1;  ///< vectors that a thread has at a time
  /// Whether those are all it has: then they stay in registers from one loop
  /// over the columns to the next.
  bool kept = true;
};

struct Launch {
  int64_t threads = 1;  ///< of a row
  int64_t rows = 1;     ///< of a block
  int64_t sequence = 1; ///< threads that share a sequential reduction
  int64_t chunks = 1;   ///< blocks that share a row
  int64_t classes = 1;  ///< of a table's rows, by their remainder
  int64_t grid = 1;
  llvm::DenseMap<const kernels::Columns *, ColumnLaunch> columns;

  int64_t block() const { return threads * rows * sequence; }
};

Launch chooseLaunch(const kernels::KernelPlan &plan);

} // namespace cleave::codegen

#endif
