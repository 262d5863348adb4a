// The runtime's own matrix product, for any strides and types. The epilogue is
// applied to each tile. Tiles of C are the tasks; every thread packs its own
// operands.

#include "cpu/gemm.h"
#include "cpu/micro.h"
#include "cpu/parallel.h"

#include <algorithm>

using namespace cleave;
using program::DType;
using program::Gemm;

namespace {
struct Tiling {
  int64_t batch = 1, rows, columns;
  explicit Tiling(const Gemm &gemm)
      : rows((gemm.m + gemmTileRows - 1) / gemmTileRows),
        columns((gemm.n + gemmTileColumns - 1) / gemmTileColumns) {
    for (int64_t size : gemm.batch)
      batch *= size;
  }
  int64_t tasks() const { return batch * rows * columns; }
};

template <class T> int64_t scratchElements() {
  return (kernelsOf<T>(microKernels()).gemmScratch() + 63) / 64 * 64;
}

int64_t batchOffset(const Gemm &gemm, const std::vector<int64_t> &strides,
                    int64_t index) {
  int64_t offset = 0;
  for (size_t i = gemm.batch.size(); i-- > 0; index /= gemm.batch[i])
    offset += index % gemm.batch[i] * strides[i];
  return offset;
}

template <class S>
std::function<void()> make(const Gemm &gemm, const GemmBuffers &at,
                           int threads) {
  using T = Compute<S>;
  GemmProblem<S> problem{};
  problem.m = gemm.m, problem.n = gemm.n, problem.k = gemm.k;
  problem.a = static_cast<const S *>(at.a);
  problem.b = static_cast<const S *>(at.b);
  if (gemm.wideResult)
    problem.wideC = static_cast<T *>(at.c);
  else
    problem.c = static_cast<S *>(at.c);
  problem.aRow = gemm.a.rowStride, problem.aCol = gemm.a.colStride;
  problem.bRow = gemm.b.rowStride, problem.bCol = gemm.b.colStride;
  problem.cRow = gemm.c.rowStride, problem.cCol = gemm.c.colStride;
  problem.preActivation = static_cast<S *>(at.preActivation);
  problem.bias = static_cast<const S *>(at.bias);
  problem.alpha = static_cast<T>(gemm.alpha);
  problem.accumulate = gemm.accumulate;
  problem.activation = static_cast<int>(gemm.activation);
  const MicroKernels<S> &kernels = kernelsOf<S>(microKernels());
  Tiling tiling(gemm);
  T *scratch = static_cast<T *>(at.workspace);
  int64_t perThread = scratchElements<S>();
  return [=, &kernels] {
    parallelFor(tiling.tasks(), 1, threads,
                [&](int64_t begin, int64_t end, int thread) {
                  for (int64_t task = begin; task < end; ++task) {
                    int64_t column = task % tiling.columns;
                    int64_t row = task / tiling.columns % tiling.rows;
                    int64_t index = task / tiling.columns / tiling.rows;
                    GemmProblem<S> one = problem;
                    one.a += batchOffset(gemm, gemm.a.batchStrides, index);
                    one.b += batchOffset(gemm, gemm.b.batchStrides, index);
                    int64_t c = batchOffset(gemm, gemm.c.batchStrides, index);
                    if (one.wideC)
                      one.wideC += c;
                    else
                      one.c += c;
                    if (one.preActivation)
                      one.preActivation += c;
                    kernels.gemmTile(
                        one, row * gemmTileRows,
                        std::min((row + 1) * gemmTileRows, one.m),
                        column * gemmTileColumns,
                        std::min((column + 1) * gemmTileColumns, one.n),
                        scratch + thread * perThread);
                  }
                });
  };
}
} // namespace

int64_t cleave::blockedGemmWorkspace(const Gemm &gemm, int threads) {
  int64_t used = std::min<int64_t>(threads, Tiling(gemm).tasks());
  return gemm.dtype == DType::F64
             ? used * scratchElements<double>() * int64_t(sizeof(double))
             : used * scratchElements<float>() * int64_t(sizeof(float));
}

std::function<void()> cleave::makeBlockedGemm(const Gemm &gemm,
                                              const GemmBuffers &buffers,
                                              int threads) {
  if (gemm.dtype == DType::BF16)
    return make<Bf16>(gemm, buffers, threads);
  return gemm.dtype == DType::F32 ? make<float>(gemm, buffers, threads)
                                  : make<double>(gemm, buffers, threads);
}
