// Scratch memory of library commands on a device.

#include "cleave/workspace.h"

#include "kernel_limits.h"

#include <algorithm>

using namespace cleave;
using namespace cleave::cuda;

int64_t cuda::gemmWorkspace(const program::Gemm &, std::string &) { return 0; }

int64_t cuda::attentionWorkspace(const program::Attention &, std::string &) {
  return 0;
}

int64_t cuda::groupedWorkspace(const program::GroupedGemm &x,
                               std::string &error) {
  // What is well-formed is so on every device.
  if (cleave::groupedWorkspace(x, 1, error) < 0)
    return -1;
  int64_t rows = 1;
  for (int64_t size : x.rows)
    rows *= size;
  if (x.e > mostMatrices || rows > INT32_MAX) {
    error = "grouped_gemm of " + std::to_string(rows) + " rows and " +
            std::to_string(x.e) + " matrices; a device takes at most " +
            std::to_string(INT32_MAX) + " and " + std::to_string(mostMatrices);
    return -1;
  }
  return roundedTo64(groupTableNumbers(x.e, rows) * int64_t(sizeof(int64_t)));
}
