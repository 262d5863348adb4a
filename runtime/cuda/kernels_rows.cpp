// Launches the kernels that sort and plan rows for the dispatch to experts.

#include "kernels.h"

#include "error.h"
#include "kernel_limits.h"
#include "kernels/arguments.h"

#include <algorithm>

using namespace cleave;
using namespace cleave::cuda;

namespace {
// The size of a thread block that counts the rows of each of `groups` groups.
// Each warp has its own table of counters in shared memory. `warps` is the
// number of warps whose tables fit, or 0 if not even one table fits; `shared`
// is the number of bytes of shared memory.
struct Counting {
  int64_t warps = 0, shared = 0;

  Counting(int64_t rows, int64_t groups, int64_t otherBytes = 0) {
    int64_t tables = (countedBytes - otherBytes) / (4 * groups);
    warps = std::min({tables - 1, (rows + 31) / 32, int64_t(32)});
    warps = std::max<int64_t>(warps, tables >= 2 ? 1 : 0);
    shared = 4 * (warps + 1) * groups + otherBytes;
  }
  int threads() const { return static_cast<int>(32 * warps); }
};

void checkRows(int64_t rows, const char *what) {
  if (rows > INT32_MAX)
    fail(CLEAVE_UNSUPPORTED, std::string(what) + " of " + std::to_string(rows) +
                                 " rows; a device takes at most " +
                                 std::to_string(INT32_MAX));
}
} // namespace

Enqueue cuda::makeSortRows(Kernels &kernels, const program::SortRows &sort,
                           const SortRowsBuffers &at) {
  checkRows(sort.rows, "a sort");
  SortRowsArguments args{at.ids,   sort.rows,  sort.groups,
                         at.order, at.placeOf, at.sorted};
  Counting counting(sort.rows, sort.groups + 1);
  if (sort.rows == 0)
    return [](CUstream) {};
  if (counting.warps == 0)
    return [&kernels, args](CUstream stream) {
      kernels.launch("cleave_sort_rows_pairs", (args.rows + 255) / 256, 256, 0,
                     stream, args);
    };
  return [&kernels, args, counting](CUstream stream) {
    kernels.launch("cleave_sort_rows", 1, counting.threads(), counting.shared,
                   stream, args);
  };
}

Enqueue cuda::makePlanRows(Kernels &kernels, const program::PlanRows &plan,
                           const PlanRowsBuffers &at) {
  checkRows(plan.rows, "a plan");
  PlanRowsArguments args{at.ids,      plan.rows, plan.rounds, plan.ranks,
                         plan.places, plan.tile, at.sources,  at.placeOf,
                         at.sent,     at.counts};
  Counting counting(plan.rows, plan.ranks + 1);
  if (counting.warps == 0)
    fail(CLEAVE_UNSUPPORTED, "a plan for " + std::to_string(plan.ranks) +
                                 " ranks; a device takes at most " +
                                 std::to_string(mostMatrices));
  int64_t places = plan.rounds * plan.ranks * plan.places;
  auto none = [&](int64_t *numbers) {
    return makeFill(kernels, reinterpret_cast<char *>(numbers), places, 8,
                    ~uint64_t(0));
  };
  return [&kernels, args, counting, clearSources = none(at.sources),
          clearSent = none(at.sent)](CUstream stream) {
    clearSources(stream);
    clearSent(stream);
    kernels.launch("cleave_plan_rows", 1, counting.threads(), counting.shared,
                   stream, args);
  };
}

Enqueue cuda::makePositionInExpert(Kernels &kernels,
                                   const program::PositionInExpert &x,
                                   const PositionInExpertBuffers &at) {
  int64_t slots = x.s * x.k;
  checkRows(slots, "positions in experts of samples");
  if (slots == 0 || x.b == 0)
    return [](CUstream) {};
  Counting counting(slots, x.e + 1, 8 * x.e);
  PositionArguments args{};
  args.ids = at.ids, args.positions = at.positions;
  args.loads = at.loads, args.samples = at.samples;
  args.result = at.result;
  args.s = x.s, args.k = x.k, args.e = x.e, args.rows = x.rows;
  args.perSample = x.perSample;
  args.inShared = counting.warps > 0;
  int threads = args.inShared ? counting.threads() : 256;
  int64_t shared = args.inShared ? counting.shared : 0;
  args.chunks = (slots + threads - 1) / threads;
  return [&kernels, args, threads, shared, samples = x.b](CUstream stream) {
    kernels.launch("cleave_position_in_expert", samples * args.chunks, threads,
                   shared, stream, args);
  };
}
