// Preparing the library commands of one rank: products, attention, and the
// planning of rows.

#include "rank.h"

#include "cleave/workspace.h"
#include "cpu/attention.h"
#include "cpu/gemm.h"
#include "cpu/grouped.h"
#include "cpu/position_in_expert.h"
#include "span.h"

#include <algorithm>

using namespace cleave;
using namespace cleave::program;

void *Rank::workspace(const BufferRef &planned, int64_t plannedBytes,
                      int64_t neededBytes) {
  if (planned.present()) {
    char *at = resolve(planned, 0, plannedBytes);
    if (plannedBytes >= neededBytes)
      return at;
  }
  return unplanned.data();
}

Rank::Run Rank::prepare(const Gemm &gemm) {
  std::string error;
  int64_t need = gemmWorkspace(gemm, threads, error);
  if (need < 0)
    fail(CLEAVE_UNSUPPORTED, error);
  auto matrix = [&](const BufferRef &buffer, const MatrixRef &matrix,
                    int64_t rows, int64_t columns, DType type) {
    std::vector<int64_t> dims = gemm.batch, strides = matrix.batchStrides;
    dims.insert(dims.end(), {rows, columns});
    strides.insert(strides.end(), {matrix.rowStride, matrix.colStride});
    return resolve(buffer, 0, spanOf(dims, strides, sizeOf(type)));
  };
  GemmBuffers buffers;
  buffers.a = matrix(gemm.a.buffer, gemm.a, gemm.m, gemm.k, gemm.dtype);
  buffers.b = matrix(gemm.b.buffer, gemm.b, gemm.k, gemm.n, gemm.dtype);
  buffers.c = matrix(gemm.c.buffer, gemm.c, gemm.m, gemm.n, gemm.resultType());
  if (gemm.bias.present())
    buffers.bias = resolve(gemm.bias, 0, spanOf(gemm.n, sizeOf(gemm.dtype)));
  if (gemm.preActivation.present())
    buffers.preActivation =
        matrix(gemm.preActivation, gemm.c, gemm.m, gemm.n, gemm.resultType());
  buffers.workspace = workspace(gemm.workspace, gemm.workspaceSize, need);
  return makeGemm(gemm, buffers, threads);
}

Rank::Run Rank::prepare(const Attention &x) {
  std::string error;
  int64_t need = attentionWorkspace(x, threads, error);
  if (need < 0)
    fail(CLEAVE_UNSUPPORTED, error);
  using Dims = std::array<int64_t, 5>;
  auto at = [&](const AttentionRef &ref, Dims dims, int64_t size) {
    return resolve(ref.buffer, 0, spanOf(dims, ref.strides, size));
  };
  int64_t size = sizeOf(x.dtype);
  int64_t wide = std::max(size, sizeOf(DType::F32)); // lse and bias
  AttentionBuffers buffers;
  buffers.q = at(x.q, {x.b, x.qLen, x.n, x.g, x.d}, size);
  buffers.k = at(x.k, {x.b, x.kLen, x.n, 1, x.d}, size);
  buffers.v = at(x.v, {x.b, x.kLen, x.n, 1, x.dv}, size);
  buffers.o = at(x.o, {x.b, x.qLen, x.n, x.g, x.dv}, size);
  buffers.lse = at(x.lse, {x.b, x.qLen, x.n, x.g, 1}, wide);
  if (x.backward) {
    buffers.dO = at(x.dO, {x.b, x.qLen, x.n, x.g, x.dv}, size);
    buffers.dq = at(x.dq, {x.b, x.qLen, x.n, x.g, x.d}, size);
    buffers.dk = at(x.dk, {x.b, x.kLen, x.n, 1, x.d}, size);
    buffers.dV = at(x.dV, {x.b, x.kLen, x.n, 1, x.dv}, size);
  }
  if (x.bias.buffer.present())
    buffers.bias = at(x.bias, {x.b, x.qLen, x.n, x.g, x.kLen}, wide);
  auto index = [&](auto *&data, const IndexRef &ref, int64_t length) {
    if (ref.buffer.present())
      data = reinterpret_cast<std::remove_reference_t<decltype(data)>>(
          resolve(ref.buffer, 0,
                  spanOf(std::array{x.b, length}, ref.strides, sizeof(*data))));
  };
  index(buffers.queryPositions, x.queryPositions, x.qLen);
  index(buffers.keyPositions, x.keyPositions, x.kLen);
  index(buffers.querySegments, x.querySegments, x.qLen);
  index(buffers.keySegments, x.keySegments, x.kLen);
  index(buffers.keyMask, x.keyMask, x.kLen);
  buffers.workspace = workspace(x.workspace, x.workspaceSize, need);
  buffers.flops = attentionFlops;
  return makeAttention(x, buffers, threads);
}

Rank::Run Rank::prepare(const GroupedGemm &x) {
  std::string error;
  int64_t need = groupedWorkspace(x, threads, error);
  if (need < 0)
    fail(CLEAVE_UNSUPPORTED, error);
  int64_t size = sizeOf(x.dtype), result = sizeOf(x.resultType());
  auto rows = [&](const RowsRef &ref, int64_t width, int64_t bytes) {
    std::vector<int64_t> dims = x.rows, strides = ref.strides;
    dims.push_back(width);
    strides.push_back(ref.column);
    return resolve(ref.buffer, 0, spanOf(dims, strides, bytes));
  };
  GroupedBuffers buffers;
  buffers.a = rows(x.a, x.k, size);
  buffers.c = rows(x.c, x.n, x.outer ? size : result);
  buffers.ids = reinterpret_cast<const int64_t *>(rows(x.ids, 1, 8));
  buffers.w = resolve(
      x.w.buffer, 0,
      spanOf(std::array{x.e, x.k, x.n},
             std::array{x.w.batchStrides[0], x.w.rowStride, x.w.colStride},
             x.outer ? result : size));
  buffers.workspace = workspace(x.workspace, x.workspaceSize, need);
  return makeGrouped(x, buffers, threads);
}

Rank::Run Rank::prepare(const PlanRows &x) {
  if (x.rows < 0 || x.rounds < 1 || x.ranks < 1 || x.places < 0 || x.tile < 1 ||
      checkedProduct(x.rounds, x.places) < x.rows)
    bad(std::to_string(x.rows) + " rows in " + std::to_string(x.rounds) +
        " rounds of " + std::to_string(x.places) + " places on each of " +
        std::to_string(x.ranks) + " ranks with tiles of " +
        std::to_string(x.tile));
  auto numbers = [&](const BufferRef &ref, int64_t count) {
    return reinterpret_cast<int64_t *>(resolve(ref, 0, spanOf(count, 8)));
  };
  int64_t all = checkedProduct(checkedProduct(x.rounds, x.ranks), x.places);
  int64_t *ids = numbers(x.ids, x.rows), *placeOf = numbers(x.placeOf, x.rows),
          *sources = numbers(x.sources, all), *sent = numbers(x.sent, all),
          *counts = numbers(x.counts, checkedProduct(x.ranks, x.rounds));
  return [=, rows = x.rows, rounds = x.rounds, ranks = x.ranks,
          places = x.places, tile = x.tile] {
    // First all rows of a rank are counted in its first round.
    std::fill_n(counts, ranks * rounds, 0);
    std::fill_n(sources, all, -1);
    std::fill_n(sent, all, -1);
    for (int64_t row = 0; row < rows; ++row) {
      int64_t to = ids[row] < 0 ? ranks : ids[row] / tile;
      if (to >= ranks) {
        placeOf[row] = -1;
        continue;
      }
      int64_t number = counts[to * rounds]++;
      int64_t place = (number / places * ranks + to) * places + number % places;
      placeOf[row] = place;
      sources[place] = row;
      sent[place] = ids[row] - to * tile;
    }
    for (int64_t rank = 0; rank < ranks; ++rank) {
      int64_t left = counts[rank * rounds];
      for (int64_t round = 0; round < rounds; ++round) {
        counts[rank * rounds + round] = std::min(left, places);
        left -= counts[rank * rounds + round];
      }
    }
  };
}

Rank::Run Rank::prepare(const SortRows &x) {
  if (x.rows < 0 || x.groups < 1)
    bad(std::to_string(x.rows) + " rows in " + std::to_string(x.groups) +
        " groups");
  auto numbers = [&](const BufferRef &ref) {
    return reinterpret_cast<int64_t *>(resolve(ref, 0, spanOf(x.rows, 8)));
  };
  int64_t *ids = numbers(x.ids), *order = numbers(x.order),
          *placeOf = numbers(x.placeOf), *sorted = numbers(x.sorted);
  return [=, rows = x.rows, groups = x.groups,
          ends = std::vector<int64_t>(x.groups + 1)]() mutable {
    auto chosen = [&](int64_t row) {
      return ids[row] >= 0 && ids[row] < groups ? ids[row] : groups;
    };
    std::fill(ends.begin(), ends.end(), 0);
    for (int64_t row = 0; row < rows; ++row)
      ++ends[chosen(row)];
    int64_t begin = 0;
    for (int64_t &end : ends)
      begin += std::exchange(end, begin);
    // Beginnings move to the ends as rows take their places.
    for (int64_t row = 0; row < rows; ++row) {
      int64_t id = chosen(row), place = ends[id]++;
      order[place] = row;
      placeOf[row] = place;
      sorted[place] = id < groups ? id : -1;
    }
  };
}

Rank::Run Rank::prepare(const PositionInExpert &x) {
  if (x.b < 0 || x.s < 0 || x.k < 0 || x.e < 1 || x.rows < 0)
    bad("slots of " + std::to_string(x.b) + " x " + std::to_string(x.s) +
        " x " + std::to_string(x.k) + " among " + std::to_string(x.e) +
        " experts behind " + std::to_string(x.rows) + " samples");
  auto numbers = [&](const BufferRef &ref, int64_t count) {
    return reinterpret_cast<int64_t *>(resolve(ref, 0, spanOf(count, 8)));
  };
  PositionInExpertBuffers at;
  int64_t tokens = checkedProduct(x.b, x.s),
          slots = checkedProduct(tokens, x.k);
  at.ids = numbers(x.ids, slots);
  at.positions = numbers(x.positions, x.perSample ? tokens : x.s);
  if (x.loads.present()) {
    at.loads = numbers(x.loads, checkedProduct(x.rows, x.e));
    at.samples = numbers(x.samples, x.b);
  }
  at.result = numbers(x.result, slots);
  at.scratch = numbers(x.scratch, checkedProduct(2, x.e) + x.s);
  return [x, at] { positionInExpert(x, at); };
}
