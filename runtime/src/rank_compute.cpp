// Preparing the library commands of one rank: products, attention, and the
// planning of rows.

#include "rank.h"

#include "span.h"

#include <algorithm>

using namespace cleave;
using namespace cleave::program;

void *Rank::workspace(const BufferRef &planned, int64_t plannedBytes,
                      int64_t neededBytes) {
  if (planned.present()) {
    char *at = use(planned, 0, plannedBytes, true);
    if (plannedBytes >= neededBytes)
      return at;
  }
  if (neededBytes > 0)
    accesses.push_back({unplanned->data(), neededBytes, true});
  return unplanned->data();
}

Rank::Run Rank::prepare(const Gemm &gemm) {
  std::string error;
  int64_t need = backend->workspace(gemm, error);
  if (need < 0)
    fail(CLEAVE_UNSUPPORTED, error);
  auto matrix = [&](const BufferRef &buffer, const MatrixRef &matrix,
                    int64_t rows, int64_t columns, DType type, bool written) {
    std::vector<int64_t> dims = gemm.batch, strides = matrix.batchStrides;
    dims.insert(dims.end(), {rows, columns});
    strides.insert(strides.end(), {matrix.rowStride, matrix.colStride});
    return use(buffer, 0, spanOf(dims, strides, sizeOf(type)), written);
  };
  GemmBuffers buffers;
  buffers.a = matrix(gemm.a.buffer, gemm.a, gemm.m, gemm.k, gemm.dtype, false);
  buffers.b = matrix(gemm.b.buffer, gemm.b, gemm.k, gemm.n, gemm.dtype, false);
  buffers.c =
      matrix(gemm.c.buffer, gemm.c, gemm.m, gemm.n, gemm.resultType(), true);
  if (gemm.bias.present())
    buffers.bias = use(gemm.bias, 0, spanOf(gemm.n, sizeOf(gemm.dtype)), false);
  if (gemm.preActivation.present())
    buffers.preActivation = matrix(gemm.preActivation, gemm.c, gemm.m, gemm.n,
                                   gemm.resultType(), true);
  if (gemm.derivativeAt.present())
    buffers.derivativeAt = matrix(gemm.derivativeAt, gemm.c, gemm.m, gemm.n,
                                  gemm.resultType(), false);
  if (gemm.sums.present())
    buffers.sums = use(gemm.sums, 0,
                       spanOf(gemm.numSums(), sizeOf(gemm.resultType())), true);
  buffers.workspace = workspace(gemm.workspace, gemm.workspaceSize, need);
  return backend->gemm(gemm, buffers, std::max(need, gemm.workspaceSize));
}

Rank::Run Rank::prepare(const Attention &x) {
  std::string error;
  int64_t need = backend->workspace(x, error);
  if (need < 0)
    fail(CLEAVE_UNSUPPORTED, error);
  using Dims = std::array<int64_t, 5>;
  auto at = [&](const AttentionRef &ref, Dims dims, int64_t size,
                bool written) {
    return use(ref.buffer, 0, spanOf(dims, ref.strides, size), written);
  };
  int64_t size = sizeOf(x.dtype);
  int64_t wide = std::max(size, sizeOf(DType::F32)); // lse and bias
  AttentionBuffers buffers;
  buffers.q = at(x.q, {x.b, x.qLen, x.n, x.g, x.d}, size, false);
  buffers.k = at(x.k, {x.b, x.kLen, x.n, 1, x.d}, size, false);
  buffers.v = at(x.v, {x.b, x.kLen, x.n, 1, x.dv}, size, false);
  buffers.o = at(x.o, {x.b, x.qLen, x.n, x.g, x.dv}, size, !x.backward);
  buffers.lse = at(x.lse, {x.b, x.qLen, x.n, x.g, 1}, wide, !x.backward);
  if (x.backward) {
    buffers.dO = at(x.dO, {x.b, x.qLen, x.n, x.g, x.dv}, size, false);
    buffers.dq = at(x.dq, {x.b, x.qLen, x.n, x.g, x.d}, size, true);
    buffers.dk = at(x.dk, {x.b, x.kLen, x.n, 1, x.d}, size, true);
    buffers.dV = at(x.dV, {x.b, x.kLen, x.n, 1, x.dv}, size, true);
  }
  if (x.bias.buffer.present())
    buffers.bias = at(x.bias, {x.b, x.qLen, x.n, x.g, x.kLen}, wide, false);
  auto index = [&](auto *&data, const IndexRef &ref, int64_t length) {
    if (ref.buffer.present())
      data = reinterpret_cast<std::remove_reference_t<decltype(data)>>(use(
          ref.buffer, 0,
          spanOf(std::array{x.b, length}, ref.strides, sizeof(*data)), false));
  };
  index(buffers.queryPositions, x.queryPositions, x.qLen);
  index(buffers.keyPositions, x.keyPositions, x.kLen);
  index(buffers.querySegments, x.querySegments, x.qLen);
  index(buffers.keySegments, x.keySegments, x.kLen);
  index(buffers.keyMask, x.keyMask, x.kLen);
  if (x.dropout != 0) {
    for (const BufferRef *ref :
         {&x.dropoutKeys.buffer, &x.queryIndices.buffer, &x.keyIndices.buffer})
      if (!ref->present())
        fail(CLEAVE_UNSUPPORTED,
             "attention with dropout but no numbers for it");
    buffers.dropoutKeys = reinterpret_cast<const int64_t *>(
        at(x.dropoutKeys, {x.b, 1, x.n, x.g, 1}, sizeof(int64_t), false));
    index(buffers.queryIndices, x.queryIndices, x.qLen);
    index(buffers.keyIndices, x.keyIndices, x.kLen);
  }
  buffers.workspace = workspace(x.workspace, x.workspaceSize, need);
  return backend->attention(x, buffers);
}

Rank::Run Rank::prepare(const GroupedGemm &x) {
  std::string error;
  int64_t need = backend->workspace(x, error);
  if (need < 0)
    fail(CLEAVE_UNSUPPORTED, error);
  int64_t size = sizeOf(x.dtype), result = sizeOf(x.resultType());
  auto rows = [&](const RowsRef &ref, int64_t width, int64_t bytes,
                  bool written) {
    std::vector<int64_t> dims = x.rows, strides = ref.strides;
    dims.push_back(width);
    strides.push_back(ref.column);
    return use(ref.buffer, 0, spanOf(dims, strides, bytes), written);
  };
  GroupedBuffers buffers;
  buffers.a = rows(x.a, x.k, size, false);
  buffers.c = rows(x.c, x.n, x.outer ? size : result, !x.outer);
  buffers.ids = reinterpret_cast<const int64_t *>(rows(x.ids, 1, 8, false));
  buffers.w =
      use(x.w.buffer, 0,
          spanOf(std::array{x.e, x.k, x.n},
                 std::array{x.w.batchStrides[0], x.w.rowStride, x.w.colStride},
                 x.outer ? result : size),
          x.outer);
  buffers.workspace = workspace(x.workspace, x.workspaceSize, need);
  return backend->grouped(x, buffers);
}

Rank::Run Rank::prepare(const Convolution &x) {
  if (std::string error = checkConvolution(x); !error.empty())
    bad(error);
  std::string error;
  int64_t need = backend->workspace(x, error);
  if (need < 0)
    fail(CLEAVE_UNSUPPORTED, error);
  auto at = [&](const BufferRef &ref, const std::vector<int64_t> &dims,
                ConvolutionKind written) {
    int64_t count = 1;
    for (int64_t size : dims)
      count = checkedProduct(count, size);
    return use(ref, 0, spanOf(count, sizeOf(x.dtype)), x.kind == written);
  };
  ConvolutionBuffers buffers;
  buffers.x = at(x.x, inputDims(x), ConvolutionKind::InputGrad);
  buffers.w = at(x.w, filterDims(x), ConvolutionKind::FilterGrad);
  buffers.y = at(x.y, outputDims(x), ConvolutionKind::Forward);
  buffers.workspace = workspace(x.workspace, x.workspaceSize, need);
  return backend->convolution(x, buffers);
}

Rank::Run Rank::prepare(const PlanRows &x) {
  if (x.rows < 0 || x.rounds < 1 || x.ranks < 1 || x.places < 0 || x.tile < 1 ||
      checkedProduct(x.rounds, x.places) < x.rows)
    bad(std::to_string(x.rows) + " rows in " + std::to_string(x.rounds) +
        " rounds of " + std::to_string(x.places) + " places on each of " +
        std::to_string(x.ranks) + " ranks with tiles of " +
        std::to_string(x.tile));
  auto numbers = [&](const BufferRef &ref, int64_t count, bool written = true) {
    return reinterpret_cast<int64_t *>(use(ref, 0, spanOf(count, 8), written));
  };
  int64_t all = checkedProduct(checkedProduct(x.rounds, x.ranks), x.places);
  PlanRowsBuffers at;
  at.ids = numbers(x.ids, x.rows, false);
  at.placeOf = numbers(x.placeOf, x.rows);
  at.sources = numbers(x.sources, all);
  at.sent = numbers(x.sent, all);
  at.counts = numbers(x.counts, checkedProduct(x.ranks, x.rounds));
  return backend->planRows(x, at);
}

Rank::Run Rank::prepare(const SortRows &x) {
  if (x.rows < 0 || x.groups < 1)
    bad(std::to_string(x.rows) + " rows in " + std::to_string(x.groups) +
        " groups");
  auto numbers = [&](const BufferRef &ref, bool written) {
    return reinterpret_cast<int64_t *>(use(ref, 0, spanOf(x.rows, 8), written));
  };
  SortRowsBuffers at;
  at.ids = numbers(x.ids, false);
  at.order = numbers(x.order, true);
  at.placeOf = numbers(x.placeOf, true);
  at.sorted = numbers(x.sorted, true);
  return backend->sortRows(x, at);
}

Rank::Run Rank::prepare(const PositionInExpert &x) {
  if (x.b < 0 || x.s < 0 || x.k < 0 || x.e < 1 || x.rows < 0)
    bad("slots of " + std::to_string(x.b) + " x " + std::to_string(x.s) +
        " x " + std::to_string(x.k) + " among " + std::to_string(x.e) +
        " experts behind " + std::to_string(x.rows) + " samples");
  auto numbers = [&](const BufferRef &ref, int64_t count, bool written) {
    return reinterpret_cast<int64_t *>(use(ref, 0, spanOf(count, 8), written));
  };
  PositionInExpertBuffers at;
  int64_t tokens = checkedProduct(x.b, x.s),
          slots = checkedProduct(tokens, x.k);
  at.ids = numbers(x.ids, slots, false);
  at.positions = numbers(x.positions, x.perSample ? tokens : x.s, false);
  if (x.loads.present()) {
    at.loads = numbers(x.loads, checkedProduct(x.rows, x.e), false);
    at.samples = numbers(x.samples, x.b, false);
  }
  at.result = numbers(x.result, slots, true);
  at.scratch = numbers(x.scratch, checkedProduct(2, x.e) + x.s, true);
  return backend->positionInExpert(x, at);
}
