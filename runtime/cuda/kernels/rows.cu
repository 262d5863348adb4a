// Kernels for the dispatch of tokens to experts. They sort rows by group, plan
// which rows are sent to which rank, and count for each token how many earlier
// tokens chose the same expert. Kernels that run as one block take time linear
// in the number of rows. Kernels that run as many blocks compare all pairs of
// rows, for cases in which one counter per group does not fit into shared
// memory.

#include "ranking.h"

using namespace cleave::cuda;
using namespace cleave::cuda::device;

extern "C" __global__ void __launch_bounds__(1024)
    cleave_sort_rows(SortRowsArguments x) {
  auto groupOf = [&](int64_t row) {
    int64_t id = x.ids[row];
    return id >= 0 && id < x.groups ? id : x.groups;
  };
  rankRows(rankingTables(sharedMemory(), x.groups + 1), x.rows, x.groups + 1,
           true, groupOf, [&](int64_t row, int64_t group, int64_t place) {
             x.order[place] = row;
             x.placeOf[row] = place;
             x.sorted[place] = group < x.groups ? group : -1;
           });
}

/// Sorts by comparing all pairs of rows, with one thread per row. Used if there
/// are so many groups that their counters do not fit into shared memory.
extern "C" __global__ void __launch_bounds__(256)
    cleave_sort_rows_pairs(SortRowsArguments x) {
  __shared__ int64_t others[256];
  int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  auto groupOf = [&](int64_t row) {
    int64_t id = row < x.rows ? x.ids[row] : -1;
    return id >= 0 && id < x.groups ? id : x.groups;
  };
  int64_t own = groupOf(row), place = 0;
  for (int64_t first = 0; first < x.rows; first += blockDim.x) {
    __syncthreads();
    others[threadIdx.x] = groupOf(first + threadIdx.x);
    __syncthreads();
    int64_t count = minOf(x.rows - first, blockDim.x);
    for (int64_t i = 0; i < count; ++i)
      place += others[i] < own || (others[i] == own && first + i < row);
  }
  if (row >= x.rows)
    return;
  x.order[place] = row;
  x.placeOf[row] = place;
  x.sorted[place] = own < x.groups ? own : -1;
}

extern "C" __global__ void __launch_bounds__(1024)
    cleave_plan_rows(PlanRowsArguments x) {
  auto rankOf = [&](int64_t row) {
    int64_t to = x.ids[row] < 0 ? x.ranks : x.ids[row] / x.tile;
    return minOf(to, x.ranks);
  };
  RankingTables tables = rankingTables(sharedMemory(), x.ranks + 1);
  rankRows(tables, x.rows, x.ranks + 1, false, rankOf,
           [&](int64_t row, int64_t to, int64_t number) {
             if (to == x.ranks) {
               x.placeOf[row] = -1;
               return;
             }
             int64_t place = (number / x.places * x.ranks + to) * x.places +
                             number % x.places;
             x.placeOf[row] = place;
             x.sources[place] = row;
             x.sent[place] = x.ids[row] - to * x.tile;
           });
  __syncthreads();
  for (int64_t i = threadIdx.x; i < x.ranks * x.rounds; i += blockDim.x) {
    int64_t left = tables.totals[i / x.rounds] - i % x.rounds * x.places;
    x.counts[i] = maxOf(minOf(left, x.places), 0);
  }
}

namespace {
CLEAVE_DEVICE int64_t loadBefore(const PositionArguments &x, int64_t sample,
                                 int64_t expert) {
  if (!x.loads)
    return 0;
  int64_t sum = 0, rows = minOf(maxOf(x.samples[sample], 0), x.rows);
  for (int64_t row = 0; row < rows; ++row)
    sum += x.loads[row * x.e + expert];
  return sum;
}

/// Processes the token-expert pairs of a sample in order, with one thread
/// block. The code calls such a pair, a token and an expert that it chose, a
/// slot.
CLEAVE_DEVICE void countUp(const PositionArguments &x, int64_t sample) {
  const int64_t *ids = x.ids + sample * x.s * x.k;
  int64_t *result = x.result + sample * x.s * x.k;
  auto *before = reinterpret_cast<int64_t *>(sharedMemory());
  for (int64_t expert = threadIdx.x; expert < x.e; expert += blockDim.x)
    before[expert] = loadBefore(x, sample, expert);
  auto chosen = [&](int64_t slot) {
    return ids[slot] >= 0 && ids[slot] < x.e ? ids[slot] : x.e;
  };
  auto *rest = reinterpret_cast<unsigned char *>(before + x.e);
  rankRows(rankingTables(rest, x.e + 1), x.s * x.k, x.e + 1, false, chosen,
           [&](int64_t slot, int64_t expert, int64_t number) {
             result[slot] = expert < x.e ? before[expert] + number : 0;
           });
}
} // namespace

extern "C" __global__ void __launch_bounds__(1024)
    cleave_position_in_expert(PositionArguments x) {
  __shared__ int countsUp;
  constexpr int tile = 1024;
  __shared__ int64_t otherIds[tile], otherPositions[tile];
  int64_t sample = blockIdx.x / x.chunks, chunk = blockIdx.x % x.chunks;
  const int64_t *positions = x.positions + (x.perSample ? sample * x.s : 0);
  if (threadIdx.x == 0)
    countsUp = x.inShared;
  __syncthreads();
  for (int64_t i = threadIdx.x; i + 1 < x.s; i += blockDim.x)
    if (positions[i] >= positions[i + 1])
      countsUp = 0; // all writers write the same value
  __syncthreads();
  if (countsUp) {
    if (chunk == 0)
      countUp(x, sample);
    return;
  }
  // Each thread has one token-expert pair (slot), and compares it with all
  // other pairs of the sample.
  const int64_t *ids = x.ids + sample * x.s * x.k;
  int64_t slots = x.s * x.k, slot = chunk * blockDim.x + threadIdx.x;
  int64_t id = slot < slots ? ids[slot] : -1, number = 0;
  int64_t position = slot < slots ? positions[slot / x.k] : 0;
  int64_t index = slot % x.k;
  for (int64_t first = 0; first < slots; first += blockDim.x) {
    __syncthreads();
    if (int64_t other = first + threadIdx.x; other < slots) {
      otherIds[threadIdx.x] = ids[other];
      otherPositions[threadIdx.x] = positions[other / x.k];
    }
    __syncthreads();
    int64_t count = minOf(slots - first, blockDim.x), turn = first % x.k;
    for (int64_t i = 0; i < count; ++i) {
      bool isBefore = otherPositions[i] < position ||
                      (otherPositions[i] == position && turn < index);
      number += isBefore && otherIds[i] == id;
      turn = turn + 1 == x.k ? 0 : turn + 1;
    }
  }
  if (slot < slots)
    x.result[sample * slots + slot] =
        id >= 0 && id < x.e ? number + loadBefore(x, sample, id) : 0;
}

CLEAVE_KERNELS(rows, CLEAVE_KERNEL(sort_rows), CLEAVE_KERNEL(sort_rows_pairs),
               CLEAVE_KERNEL(plan_rows), CLEAVE_KERNEL(position_in_expert))
