// Launches the runtime's kernels for matrix products and grouped products.

#include "kernels.h"

#include "cleave/workspace.h"
#include "error.h"
#include "kernel_limits.h"
#include "kernels/arguments.h"

#include <algorithm>

using namespace cleave;
using namespace cleave::cuda;
using program::DType;

namespace {
int64_t divideUp(int64_t x, int64_t by) { return (x + by - 1) / by; }

struct BatchDim {
  int64_t size, a, b, c;
};

// Returns the batch dimensions of a product, innermost first. Adjacent
// dimensions are merged if possible.
std::vector<BatchDim> batchOf(const program::Gemm &gemm) {
  std::vector<BatchDim> dims;
  for (size_t i = gemm.batch.size(); i-- > 0;) {
    BatchDim dim{gemm.batch[i], gemm.a.batchStrides[i], gemm.b.batchStrides[i],
                 gemm.c.batchStrides[i]};
    if (dim.size == 1)
      continue;
    if (!dims.empty()) {
      BatchDim &inner = dims.back();
      if (dim.a == inner.size * inner.a && dim.b == inner.size * inner.b &&
          dim.c == inner.size * inner.c) {
        inner.size *= dim.size;
        continue;
      }
    }
    dims.push_back(dim);
  }
  return dims;
}

void checkType(DType type, bool isWide, const char *what) {
  if (type != DType::F32 && type != DType::F64 && type != DType::BF16)
    fail(CLEAVE_UNSUPPORTED, std::string(what) + " in " + nameOf(type) +
                                 " is not supported; use f32, f64 or bf16");
  if (isWide && type != DType::BF16)
    fail(CLEAVE_UNSUPPORTED, std::string(what) + " in " + nameOf(type) +
                                 " whose result is to be f32: only that of "
                                 "bf16 is wider");
}

// A kernel for grouped products: its name, the rows and columns of its tiles,
// and its dynamic shared memory.
struct GroupedVariant {
  const char *name;
  int64_t rows, columns, shared = 0;
};

GroupedVariant onWarpgroups(const char *name) {
  return {name, stagedRows, stagedColumns, stagedBytes};
}

GroupedVariant variantOf(const program::GroupedGemm &x,
                         const GroupedBuffers &at, bool hasWarpgroups) {
  if (x.dtype == DType::F64)
    return {x.outer ? "cleave_grouped_outer_f64" : "cleave_grouped_f64",
            productRows, productColumns};
  // Tensor cores read bf16 rows in units of 16 bytes.
  auto fits = [&](const program::RowsRef &ref, const void *data,
                  int64_t width) {
    int64_t bits = width;
    for (size_t i = 0; i < x.rows.size(); ++i)
      if (x.rows[i] > 1)
        bits |= ref.strides[i];
    return ref.column == 1 && bits % 8 == 0 && address(data) % 16 == 0;
  };
  bool fitsMatrices = x.dtype == DType::BF16 && fits(x.a, at.a, x.k);
  bool isAligned = x.w.batchStrides[0] % 8 == 0 && address(at.w) % 16 == 0;
  bool alongRows = x.w.colStride == 1 && (x.w.rowStride | x.n) % 8 == 0;
  bool alongColumns = x.w.rowStride == 1 && x.w.colStride % 8 == 0;
  // Warpgroup kernels are used only for results at least as wide as a tile,
  // because smaller results would leave most of a tile empty. These kernels
  // store results in units of 16 bytes.
  bool fitsWarpgroups = hasWarpgroups && fitsMatrices && isAligned &&
                        fits(x.c, at.c, x.n) && x.n >= stagedColumns;
  if (fitsMatrices && x.outer && fits(x.c, at.c, x.n))
    return fitsWarpgroups && alongRows && x.k >= stagedRows
               ? onWarpgroups("cleave_grouped_outer_warpgroup")
               : GroupedVariant{"cleave_grouped_outer_bf16", matrixRows,
                                matrixColumns};
  if (fitsMatrices && !x.outer && isAligned && alongRows)
    return fitsWarpgroups ? onWarpgroups("cleave_grouped_warpgroup")
                          : GroupedVariant{"cleave_grouped_bf16", matrixRows,
                                           matrixColumns};
  if (fitsMatrices && !x.outer && isAligned && alongColumns)
    return fitsWarpgroups ? onWarpgroups("cleave_grouped_warpgroup_columns")
                          : GroupedVariant{"cleave_grouped_bf16_columns",
                                           matrixRows, matrixColumns};
  return {x.outer ? "cleave_grouped_outer_f32" : "cleave_grouped_f32",
          productRows, productColumns};
}
} // namespace

Enqueue cuda::makePlainGemm(Kernels &kernels, const program::Gemm &gemm,
                            const GemmBuffers &at) {
  checkType(gemm.dtype, gemm.wideResult, "gemm");
  if (gemm.wideResult && gemm.preActivation.present())
    fail(CLEAVE_UNSUPPORTED,
         "gemm in bf16 with two results of f32 is not supported");
  for (const program::MatrixRef *matrix : {&gemm.a, &gemm.b, &gemm.c})
    if (matrix->batchStrides.size() != gemm.batch.size())
      fail(CLEAVE_BAD_PROGRAM, "gemm with " +
                                   std::to_string(gemm.batch.size()) +
                                   " batch dimensions has an operand with " +
                                   std::to_string(matrix->batchStrides.size()));
  std::vector<BatchDim> batch = batchOf(gemm);
  if (batch.size() > size_t(batchDims))
    fail(CLEAVE_UNSUPPORTED, "gemm with " + std::to_string(batch.size()) +
                                 " batch dimensions; a device takes at most " +
                                 std::to_string(batchDims));
  GemmArguments x{};
  x.a = at.a, x.b = at.b, x.c = at.c;
  x.bias = at.bias, x.preActivation = at.preActivation;
  x.m = gemm.m, x.n = gemm.n, x.k = gemm.k;
  x.aRow = gemm.a.rowStride, x.aCol = gemm.a.colStride;
  x.bRow = gemm.b.rowStride, x.bCol = gemm.b.colStride;
  x.cRow = gemm.c.rowStride, x.cCol = gemm.c.colStride;
  x.alpha = gemm.alpha;
  x.rowTiles = divideUp(x.m, productRows);
  x.columnTiles = divideUp(x.n, productColumns);
  x.isBf16 = gemm.dtype == DType::BF16, x.isWide = gemm.wideResult;
  x.accumulate = gemm.accumulate;
  x.activation = static_cast<int32_t>(gemm.activation);
  x.numBatch = static_cast<int32_t>(batch.size());
  int64_t blocks = x.rowTiles * x.columnTiles;
  for (size_t i = 0; i < batch.size(); ++i) {
    x.batch[i] = batch[i].size;
    x.aBatch[i] = batch[i].a, x.bBatch[i] = batch[i].b;
    x.cBatch[i] = batch[i].c;
    blocks *= batch[i].size;
  }
  const char *name =
      gemm.dtype == DType::F64 ? "cleave_gemm_f64" : "cleave_gemm_f32";
  return [&kernels, x, blocks, name](CUstream stream) {
    kernels.launch(name, blocks, productThreads, 0, stream, x);
  };
}

Enqueue cuda::makeGrouped(Kernels &kernels, const program::GroupedGemm &grouped,
                          const GroupedBuffers &at) {
  std::string error;
  if (cuda::groupedWorkspace(grouped, error) < 0)
    fail(CLEAVE_UNSUPPORTED, error);
  int64_t rows = 1;
  for (int64_t size : grouped.rows)
    rows *= size;

  GroupTables tables{};
  tables.rowEnd = static_cast<int64_t *>(at.workspace);
  tables.tileEnd = tables.rowEnd + grouped.e + 1;
  tables.aAt = tables.tileEnd + grouped.e + 1;
  tables.cAt = tables.aAt + rows;

  GroupRowsArguments sort{};
  sort.tables = tables;
  sort.ids = at.ids;
  sort.rows = rows, sort.e = grouped.e;
  for (size_t i = grouped.rows.size(); i-- > 0;) {
    if (rows == 0 || grouped.rows[i] == 1)
      continue;
    int32_t dim = sort.dims++;
    sort.size[dim] = grouped.rows[i];
    sort.divider[dim] = dividerOf(static_cast<uint32_t>(grouped.rows[i]));
    sort.aStride[dim] = grouped.a.strides[i];
    sort.cStride[dim] = grouped.c.strides[i];
    sort.idStride[dim] = grouped.ids.strides[i];
  }
  int64_t warps = std::min({countedBytes / (4 * (grouped.e + 1)) - 1,
                            divideUp(rows, 32), int64_t(32)});
  warps = std::max<int64_t>(warps, 1);
  int64_t shared = 4 * (warps + 1) * (grouped.e + 1);

  GroupedArguments x{};
  x.tables = tables;
  x.a = at.a, x.c = at.c, x.w = at.w;
  x.e = grouped.e, x.k = grouped.k, x.n = grouped.n;
  x.aCol = grouped.a.column, x.cCol = grouped.c.column;
  x.wMatrix = grouped.w.batchStrides[0];
  x.wRow = grouped.w.rowStride, x.wCol = grouped.w.colStride;
  GroupedVariant variant = variantOf(grouped, at, kernels.hasWarpgroups);
  sort.tileRows = variant.rows;
  x.columnTiles = divideUp(x.n, variant.columns);
  x.rowTiles = divideUp(x.k, variant.rows);
  x.isBf16 = grouped.dtype == DType::BF16, x.isWide = grouped.wideResult;
  // An upper bound for the number of tiles along the rows. The exact number
  // depends on how many rows choose each matrix, which only the device knows.
  int64_t tiles = grouped.outer
                      ? grouped.e * x.rowTiles
                      : rows / variant.rows + std::min(grouped.e + 1, rows);
  return [&kernels, sort, x, warps, shared, tiles, variant](CUstream stream) {
    kernels.launch("cleave_group_rows", 1, static_cast<int>(32 * warps), shared,
                   stream, sort);
    kernels.launch(variant.name, tiles * x.columnTiles, productThreads,
                   variant.shared, stream, x);
  };
}
