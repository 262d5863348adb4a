// Counts, for each row, the earlier rows of the same group, such as the rows
// that are sent to the same rank. One thread block processes all rows. Each
// warp has a section of the rows and its own counters, so the order in which
// warps run does not matter.
#ifndef CLEAVE_RUNTIME_CUDA_KERNELS_RANKING_H
#define CLEAVE_RUNTIME_CUDA_KERNELS_RANKING_H

#include "device_code.h"

namespace cleave::cuda::device {

// Counters in shared memory for rankRows(): the number of rows of each group,
// for each of the block's `warps` warps and in total.
struct RankingTables {
  uint32_t *counts; // [warps, groups]
  uint32_t *totals; // [groups]
};

CLEAVE_DEVICE RankingTables rankingTables(unsigned char *at, int64_t groups) {
  auto *counts = reinterpret_cast<uint32_t *>(at);
  return {counts, counts + blockDim.x / 32 * groups};
}

/// Calls visit(row, group, same, isRow) for each row of the warp's section, one
/// row per lane at a time. `same` is the mask of lanes whose row is in the same
/// group. `isRow` is false for lanes beyond the end of the section.
template <class GroupOf, class Visit>
CLEAVE_DEVICE void forSection(int64_t rows, GroupOf groupOf, Visit visit) {
  int64_t warps = blockDim.x / 32, warp = threadIdx.x / 32;
  int64_t section = (rows + 32 * warps - 1) / (32 * warps) * 32;
  int64_t begin = warp * section, end = minOf(begin + section, rows);
  int64_t row = begin + threadIdx.x % 32;
  constexpr unsigned none = ~0u;
  unsigned next = row < end ? unsigned(groupOf(row)) : none;
  for (int64_t first = begin; first < end; first += 32, row += 32) {
    unsigned group = next;
    next = row + 32 < end ? unsigned(groupOf(row + 32)) : none;
    unsigned same = __match_any_sync(allLanes, group);
    visit(row, group, same, group != none);
  }
}

/// Replaces each of the `count` values by the sum of all values before it (an
/// exclusive prefix sum). All threads of the block must call this function.
CLEAVE_DEVICE void sumBefore(uint32_t *values, int64_t count) {
  __shared__ uint32_t warpSums[32];
  __shared__ uint32_t carry;
  unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (threadIdx.x == 0)
    carry = 0;
  for (int64_t first = 0; first < count; first += blockDim.x) {
    int64_t at = first + threadIdx.x;
    uint32_t own = at < count ? values[at] : 0, sum = own;
    for (int by = 1; by < 32; by *= 2) {
      uint32_t before = __shfl_up_sync(allLanes, sum, by);
      if (lane >= unsigned(by))
        sum += before;
    }
    if (lane == 31)
      warpSums[warp] = sum;
    __syncthreads();
    uint32_t before = carry, all = carry;
    for (unsigned i = 0; i < blockDim.x / 32; ++i) {
      before += i < warp ? warpSums[i] : 0;
      all += warpSums[i];
    }
    if (at < count)
      values[at] = before + sum - own;
    __syncthreads();
    if (threadIdx.x == 0)
      carry = all;
  }
  __syncthreads();
}

/// Calls visit(row, group, number) for every row, whose group is groupOf(row),
/// in [0, groups). `number` is the number of earlier rows in the same group or,
/// if `isSorted`, the row's position after sorting by group. Afterwards
/// `totals` holds the size of each group or, if `isSorted`, the position at
/// which it begins.
template <class GroupOf, class Visit>
CLEAVE_DEVICE void rankRows(const RankingTables &tables, int64_t rows,
                            int64_t groups, bool isSorted, GroupOf groupOf,
                            Visit visit) {
  int64_t warps = blockDim.x / 32;
  uint32_t *own = tables.counts + threadIdx.x / 32 * groups;
  unsigned lane = threadIdx.x % 32;
  for (int64_t i = threadIdx.x; i < warps * groups; i += blockDim.x)
    tables.counts[i] = 0;
  __syncthreads();
  forSection(rows, groupOf,
             [&](int64_t, unsigned group, unsigned same, bool isRow) {
               if (isRow && unsigned(__ffs(int(same))) == lane + 1)
                 own[group] += unsigned(__popc(same));
               __syncwarp();
             });
  __syncthreads();
  for (int64_t group = threadIdx.x; group < groups; group += blockDim.x) {
    uint32_t sum = 0;
    for (int64_t warp = 0; warp < warps; ++warp) {
      uint32_t count = tables.counts[warp * groups + group];
      tables.counts[warp * groups + group] = sum;
      sum += count;
    }
    tables.totals[group] = sum;
  }
  __syncthreads();
  if (isSorted) {
    sumBefore(tables.totals, groups);
    for (int64_t i = threadIdx.x; i < warps * groups; i += blockDim.x)
      tables.counts[i] += tables.totals[i % groups];
    __syncthreads();
  }
  forSection(rows, groupOf,
             [&](int64_t row, unsigned group, unsigned same, bool isRow) {
               uint32_t before = isRow ? own[group] : 0;
               __syncwarp();
               if (isRow && unsigned(__ffs(int(same))) == lane + 1)
                 own[group] = before + unsigned(__popc(same));
               __syncwarp();
               unsigned earlier = same & ((1u << lane) - 1);
               if (isRow)
                 visit(row, int64_t(group), int64_t(before) + __popc(earlier));
             });
}

} // namespace cleave::cuda::device

#endif // CLEAVE_RUNTIME_CUDA_KERNELS_RANKING_H
