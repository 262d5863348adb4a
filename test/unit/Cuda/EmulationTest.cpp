// Mistakes that the emulation of device code on the CPU detects.

#include "kernels/warpgroup.h"

#include <bit>
#include <gmock/gmock.h>
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

/// A warpgroup copies numbers to shared memory and accumulates their products,
/// or makes one of several mistakes whose effect depends on timing on a device.
enum Mistake {
  None,
  ReadsEarly,
  WritesEarly,
  CopiesEarly,
  UsesEarly,
  NeverWaits,
  ReadsOutside,
  Unswizzled,
  Unaligned
};
template <Mistake mistake> using Of = std::integral_constant<Mistake, mistake>;
template <Mistake mistake> void multiplyOnce(const uint16_t *in) {
  unsigned char *memory = emulation::dynamicShared() + 1024 - 128;
  float *out = reinterpret_cast<float *>(const_cast<uint16_t *>(in));
  // Fills both operands in shared memory (16 KiB and 64 KiB) with copies of the
  // same 16 bytes.
  for (int i = int(threadIdx.x); i < 80 * 64; i += 128)
    device::copyUnit(memory + 16 * i + (mistake == Unaligned ? 8 : 0), in,
                     true);
  device::commitCopies();
  if (mistake != ReadsEarly)
    device::waitForCopies<0>();
  __syncthreads();
  device::WarpgroupSums sums = {};
  uint32_t at = device::sharedAddress(memory);
  device::multiplyAdd<false, true>(
      sums,
      device::operandOf(at, 16, 1024) ^
          (mistake == Unswizzled ? uint64_t(3) << 62 : 0),
      device::operandOf(at + (mistake == ReadsOutside ? 60 : 16) * 1024, 8192,
                        1024),
      true);
  device::commitProducts();
  if (mistake == ReadsEarly)
    device::waitForCopies<0>();
  if (mistake == WritesEarly) {
    __syncthreads();
    std::memset(memory + 128 * (threadIdx.x / 16), 0, 8);
  }
  if (mistake == CopiesEarly) {
    __syncthreads();
    device::copyUnit(memory + 16 * threadIdx.x, in, true);
    device::commitCopies();
  }
  if (mistake == NeverWaits)
    return;
  float early = sums[5];
  device::waitForProducts<0>(sums);
  device::waitForCopies<0>();
  __syncthreads();
  out[8 + threadIdx.x] = mistake == UsesEarly ? early : sums[5];
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
  // Errors of a launch do not affect later launches.
  std::vector<int> sums(1);
  runOn<sumBlock>(sums.data(), 1, 100, 400);
  EXPECT_EQ(sums[0], 4950);
}

TEST(Emulation, FindsWhatIsNotWaitedFor) {
  // The numbers are 1, 2, ..., 8 in bf16. Each row of the product's left
  // operand has every number twice. Each column of the right operand has only
  // one number, 16 times.
  constexpr int64_t shared = 1024 + 80 * 1024;
  std::vector<uint16_t> numbers(1024);
  auto reset = [&] {
    std::fill(numbers.begin(), numbers.end(), uint16_t(0));
    for (int i = 0; i < 8; ++i)
      numbers[i] = uint16_t(std::bit_cast<uint32_t>(float(i + 1)) >> 16);
  };
  auto isRight = [&] {
    for (int i = 0; i < 128; ++i) {
      float got;
      std::memcpy(&got, numbers.data() + 16 + 2 * i, 4);
      // Thread i has stored the element in column 8 + 2 t + 1 of the product,
      // where t is i % 4. This column of the right operand has only the number
      // 2 t + 2. The numbers in a row of the left operand have the sum 72.
      if (got != 72 * float(2 * (i % 4) + 2))
        return false;
    }
    return true;
  };
  auto run = [&](auto mistake) {
    reset();
    return messageOf([&] {
      runOn<multiplyOnce<mistake.value>>(numbers.data(), 1, 128, shared);
    });
  };
  for (ThreadOrder order : {ThreadOrder::Descending, ThreadOrder::Ascending}) {
    setThreadOrder(order);
    EXPECT_EQ(run(Of<None>()), "");
    EXPECT_TRUE(isRight());
    EXPECT_EQ(run(Of<UsesEarly>()), "");
    EXPECT_FALSE(isRight());
    const char *changed = "writes the operands of a product that is under way";
    EXPECT_THAT(run(Of<ReadsEarly>()), testing::EndsWith(changed));
    EXPECT_THAT(run(Of<WritesEarly>()), testing::EndsWith(changed));
    EXPECT_THAT(run(Of<CopiesEarly>()), testing::EndsWith(changed));
    EXPECT_THAT(run(Of<Unswizzled>()), testing::HasSubstr("is not swizzled"));
    EXPECT_THAT(run(Of<Unaligned>()),
                testing::EndsWith("a unit that is no multiple of 16 bytes"));
    EXPECT_THAT(run(Of<NeverWaits>()),
                testing::EndsWith("ends without waiting for what it began"));
    EXPECT_THAT(
        run(Of<ReadsOutside>()),
        testing::EndsWith("reads shared memory that the block does not have"));
  }
}
