// What the emulation of device code finds.

#include "kernels/emulation.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

using namespace cleave;
using namespace cleave::cuda;

namespace {
void rotate(int *out) {
  int lane = static_cast<int>(threadIdx.x & 31);
  int got = __shfl_sync(~0u, static_cast<int>(threadIdx.x), lane + 1);
  got += 1000 * __shfl_xor_sync(~0u, lane, 1);
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = got;
}

void sumBlock(int *out) {
  auto *shared = reinterpret_cast<int *>(emulation::dynamicShared());
  shared[threadIdx.x] = static_cast<int>(threadIdx.x);
  __syncthreads();
  if (threadIdx.x != 0)
    return;
  for (unsigned i = 0; i < blockDim.x; ++i)
    out[blockIdx.x] += shared[i];
}

void vote(unsigned *out) {
  out[threadIdx.x] = __ballot_sync(~0u, threadIdx.x % 3 == 0);
  out[32 + threadIdx.x] = __match_any_sync(~0u, threadIdx.x / 4);
}

void halfBarrier(int *) {
  if (threadIdx.x < 10)
    __syncthreads();
}

void halfShuffle(int *) {
  if (threadIdx.x != 33)
    __shfl_sync(~0u, 1, 0);
}

template <auto kernel, class T>
void runOn(T *out, int64_t grid, int block, int64_t shared = 0) {
  EmulatedKernel entry = emulation::Call<kernel>::entry("test");
  ASSERT_EQ(entry.numArgs, 1);
  ASSERT_EQ(entry.argBytes[0], int(sizeof(void *)));
  void *args[] = {&out};
  runEmulated(entry, grid, block, shared, args);
}

template <class Run> std::string messageOf(Run run) {
  try {
    run();
  } catch (const std::runtime_error &error) {
    return error.what();
  }
  return "";
}
} // namespace

TEST(Emulation, ShufflesAndBarriers) {
  for (ThreadOrder order : {ThreadOrder::Descending, ThreadOrder::Ascending}) {
    setThreadOrder(order);
    std::vector<int> out(192);
    runOn<rotate>(out.data(), 3, 64);
    for (int i = 0; i < 192; ++i) {
      int thread = i % 64, lane = thread % 32;
      EXPECT_EQ(out[i], thread - lane + (lane + 1) % 32 + 1000 * (lane ^ 1));
    }
    std::vector<int> sums(2);
    runOn<sumBlock>(sums.data(), 2, 100, 400);
    EXPECT_EQ(sums, (std::vector<int>{4950, 4950}));
    std::vector<unsigned> votes(64);
    runOn<vote>(votes.data(), 1, 32);
    for (unsigned i = 0; i < 32; ++i) {
      EXPECT_EQ(votes[i], 0x49249249u);
      EXPECT_EQ(votes[32 + i], 0xfu << i / 4 * 4);
    }
  }
}

TEST(Emulation, FindsBarriersThatSomeDoNotReach) {
  int *none = nullptr;
  EXPECT_EQ(messageOf([&] { runOn<halfBarrier>(none, 1, 64); }),
            "kernel test, block 0: 10 threads wait at a barrier that the "
            "others do not reach");
  EXPECT_EQ(messageOf([&] { runOn<halfShuffle>(none, 1, 64); }),
            "kernel test, block 0: 31 threads wait at a shuffle or barrier of "
            "warp 1 that its other lanes do not reach");
  EXPECT_NE(messageOf([&] { runOn<rotate>(none, 1, 2048); }), "");
  // Later launches are not disturbed.
  std::vector<int> sums(1);
  runOn<sumBlock>(sums.data(), 1, 100, 400);
  EXPECT_EQ(sums[0], 4950);
}
