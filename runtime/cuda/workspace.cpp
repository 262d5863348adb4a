// Computes how much scratch memory library commands need on a device.

#include "cleave/workspace.h"

#include "attention_cut.h"
#include "convolution.h"
#include "convolution_plan.h"
#include "kernel_limits.h"
#include "products.h"

#include <algorithm>

using namespace cleave;
using namespace cleave::cuda;

namespace {
constexpr int64_t tile = 128;       // rows and columns of a block of a result
constexpr int64_t processors = 132; // multiprocessors of an H100 or H200
constexpr int64_t leastDepth = 256; // terms of each partial sum
// Space for flags and tile descriptions of cuBLASLt, and up to 256 bytes of
// padding, because cuBLASLt's workspace is aligned to 256 and planned memory
// only to 64.
constexpr int64_t fixed = (int64_t(64) << 10) + 256;
constexpr int64_t most = int64_t(32) << 20;

int64_t over(int64_t a, int64_t b) { return (a + b - 1) / b; }
} // namespace

// If the results of a product are too few to occupy a device, cuBLASLt splits
// its sums into parts, and stores the partial sums in f32 or f64 in the
// workspace. It selects an algorithm that needs at most the given workspace.
int64_t cuda::gemmWorkspace(const program::Gemm &gemm, std::string &error) {
  error = checkGemm(gemm);
  if (!error.empty())
    return -1;
  int64_t batch = 1;
  for (int64_t size : gemm.batch)
    batch *= size;
  if (batch == 0 || gemm.m == 0 || gemm.n == 0 || gemm.k == 0)
    return 0;
  // These products may exceed 64 bits, so they are computed in double. The
  // result is limited to `most` bytes.
  double results = double(batch) * double(gemm.m) * double(gemm.n);
  int64_t rows = over(gemm.m, tile), columns = over(gemm.n, tile);
  double tiles = double(batch) * double(rows) * double(columns);
  int64_t parts =
      std::min(over(gemm.k, leastDepth), int64_t(2 * processors / tiles));
  if (parts < 2)
    return fixed;
  double bytes =
      results * double(parts) * (gemm.dtype == program::DType::F64 ? 8 : 4);
  if (bytes >= double(most - fixed))
    return most;
  return fixed + over(int64_t(bytes), 256) * 256;
}

int64_t cuda::attentionWorkspace(const program::Attention &x,
                                 std::string &error) {
  if (cleave::attentionWorkspace(x, 1, error) < 0)
    return -1;
  if (std::max(x.d, x.dv) > mostFeatures) {
    error = "attention with heads of " + std::to_string(std::max(x.d, x.dv)) +
            " features; a device takes at most " + std::to_string(mostFeatures);
    return -1;
  }
  int64_t bytes = 0;
  if (x.backward) {
    int64_t size = x.dtype == program::DType::F64 ? 8 : 4;
    bytes = roundedTo64(x.b * x.n * x.g * x.qLen * size); // sum(dO * o)
  }
  // cuDNN's workspace is aligned to 256 and planned memory only to 64, so 256
  // bytes are added.
  std::string why;
  if (std::optional<AttentionCut> cut = cutOf(x, why))
    bytes = std::max(bytes, cut->bytes() + 256);
  return bytes;
}

int64_t cuda::groupedWorkspace(const program::GroupedGemm &x,
                               std::string &error) {
  // The CPU's function checks the sizes first: sizes that it refuses are
  // invalid on every device.
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

int64_t cuda::convolutionWorkspace(const program::Convolution &x,
                                   std::string &error) {
  error = checkConvolution(x);
  if (error.empty() && !fitsKernels(x))
    error = "a convolution of more than 2^31 windows, or products in a sum; "
            "cut the model finer, or use a smaller batch";
  if (!error.empty())
    return -1;
  int64_t bytes = dnnConvolutionBytes(x);
  return bytes ? bytes + 256 : 0;
}
