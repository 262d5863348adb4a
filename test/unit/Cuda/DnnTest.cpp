// Attention by cuDNN: for which attention it is used, and what happens if it is
// not used or fails. cleave-gpu-kernels tests the results of the cuDNN graphs.

#include "Recorded.h"

#include "cleave/workspace.h"
#include "dnn.h"
#include "error.h"

#include <thread>

using namespace cleave;
using namespace cleave::test;
using program::Attention;

namespace {
Attention sizes(int64_t length, bool backward = true) {
  Attention x;
  x.backward = backward;
  x.dtype = program::DType::BF16;
  x.b = 2, x.n = 4, x.g = 2, x.qLen = x.kLen = length, x.d = x.dv = 64;
  x.causal = true;
  auto place = [&](program::AttentionRef &ref, int64_t g) {
    int64_t row = x.n * g * x.d;
    ref.strides = {length * row, row, g * x.d, x.d, 1};
  };
  for (auto *ref : {&x.q, &x.o, &x.dO, &x.dq})
    place(*ref, x.g);
  for (auto *ref : {&x.k, &x.v, &x.dk, &x.dV})
    place(*ref, 1);
  x.lse.strides = {x.n * x.g * length, 1, x.g * length, length, 0};
  return x;
}

// All operands and results share one array, because the tests do not read the
// results.
struct Memory {
  explicit Memory(const Attention &x)
      : all(4 * x.b * x.n * x.g * x.qLen * x.d, "arrays"),
        scratch(workspace(x), "workspace") {
    at.q = at.k = at.v = at.dO = all.data();
    at.o = at.lse = at.dq = at.dk = at.dV = all.data();
    at.workspace = scratch.data();
  }
  static int64_t workspace(const Attention &x) {
    std::string error;
    return cuda::attentionWorkspace(x, error);
  }
  cuda::DeviceMemory all, scratch;
  AttentionBuffers at;
};

class DnnTest : public Recorded {
protected:
  void SetUp() override {
    Recorded::SetUp();
    std::string why;
    if (!cuda::hasDnn(cuda::Device::of(0), why))
      GTEST_SKIP() << why;
  }
};

std::string whyNot(const Attention &x) {
  std::string why;
  cuda::diagonalOf(x, why);
  return why;
}
} // namespace

TEST(AttentionCut, KnowsDiagonals) {
  std::string why;
  Attention x = sizes(100);
  auto diagonal = cuda::diagonalOf(x, why);
  ASSERT_TRUE(diagonal);
  EXPECT_TRUE(diagonal->isCausal && !diagonal->shift && !diagonal->window);
  x.queryOffset = 7, x.keyOffset = 7; // a tile along the diagonal
  EXPECT_TRUE(cuda::diagonalOf(x, why)->isCausal);
  x.queryOffset = 106; // one below it: all are seen
  EXPECT_FALSE(cuda::diagonalOf(x, why)->isCausal);
  x.queryOffset = 105; // all but one
  EXPECT_NE(whyNot(x), "");
  x.queryOffset = 6; // the first query sees none
  EXPECT_NE(whyNot(x), "");
  x.queryOffset = 7, x.kLen = 130, x.queryOffset = 37;
  EXPECT_EQ(cuda::diagonalOf(x, why)->shift, 30);
  x = sizes(100);
  x.window = 99;
  EXPECT_EQ(cuda::diagonalOf(x, why)->window, 99);
  x.window = 100; // hides nothing
  EXPECT_EQ(cuda::diagonalOf(x, why)->window, 0);
  x.causal = false;
  EXPECT_TRUE(cuda::diagonalOf(x, why));
  x.window = 99;
  EXPECT_NE(whyNot(x), "");
}

TEST(AttentionCut, LeavesTheRest) {
  auto refuses = [](auto change) {
    Attention x = sizes(64);
    change(x);
    return whyNot(x);
  };
  EXPECT_EQ(whyNot(sizes(64)), "");
  for (auto change : std::vector<void (*)(Attention &)>{
           [](Attention &x) { x.dtype = program::DType::F32; },
           [](Attention &x) { x.softcap = 1; },
           [](Attention &x) { x.bias.buffer.arena = 0; },
           [](Attention &x) { x.queryPositions.buffer.arena = 0; },
           [](Attention &x) { x.keyPositions.buffer.arena = 0; },
           [](Attention &x) { x.querySegments.buffer.arena = 0; },
           [](Attention &x) { x.keySegments.buffer.arena = 0; },
           [](Attention &x) { x.keyMask.buffer.arena = 0; },
           [](Attention &x) { x.d = 12; }, [](Attention &x) { x.dv = 136; },
           [](Attention &x) { x.b = 0; }, [](Attention &x) { x.qLen = 1; },
           [](Attention &x) { x.n = int64_t(1) << 40; }})
    EXPECT_NE(refuses(change), "");
}

TEST(AttentionCut, BoundsScratchMemory) {
  std::string why;
  auto partsOf = [&](const Attention &x) {
    auto cut = cuda::cutOf(x, why);
    return cut ? x.b * x.n / (cut->batch * cut->heads) : 0;
  };
  EXPECT_EQ(partsOf(sizes(1024)), 1);  // 16 heads of 2 MiB, and kv heads
  EXPECT_EQ(partsOf(sizes(4096)), 4);  // of 32 MiB
  EXPECT_EQ(partsOf(sizes(8192)), 8);  // of 128 MiB: 2 of each kv head
  EXPECT_EQ(partsOf(sizes(32768)), 0); // of 2 GiB
  EXPECT_EQ(partsOf(sizes(32768, false)), 1);
  for (int64_t length : {1024, 4096, 8192}) {
    int64_t planned = Memory::workspace(sizes(length));
    EXPECT_GE(planned, cuda::cutOf(sizes(length), why)->bytes() + 256);
    EXPECT_LE(planned, int64_t(300) << 20);
  }
}

TEST_F(DnnTest, IsUsedOrNot) {
  cuda::Device &device = cuda::Device::of(0);
  cuda::Stream stream = cuda::makeStream();
  auto plansOf = [&](const Attention &x) {
    Memory memory(x);
    int64_t before = count("plans");
    cuda::makeBestAttention(device, x, memory.at)(stream.get());
    cuda::check(cuda::driver().cuStreamSynchronize(stream.get()), "waiting");
    return count("plans") - before;
  };
  Attention x = sizes(16);
  EXPECT_EQ(plansOf(x), 1);
  x.lse.strides = {16 * 8, 8, 2, 1, 0}; // cuDNN wants it by heads
  EXPECT_EQ(plansOf(x), 0);
  x = sizes(16);
  x.softcap = 2;
  EXPECT_EQ(plansOf(x), 0);
}

TEST_F(DnnTest, SaysWhy) {
  std::string why;
  Attention x = sizes(16);
  Memory memory(x);
  x.q.strides[4] = 2;
  for (int round : {0, 1}) { // remembered
    why.clear();
    EXPECT_FALSE(
        cuda::makeDnnAttention(cuda::Device::of(0), x, memory.at, why));
    EXPECT_EQ(why, "q has features that are not contiguous") << round;
  }
  x = sizes(16);
  memory.at.v = static_cast<const char *>(memory.at.v) + 8;
  EXPECT_FALSE(cuda::makeDnnAttention(cuda::Device::of(0), x, memory.at, why));
  EXPECT_EQ(why, "an array does not begin at a multiple of 16 bytes");
}

TEST_F(DnnTest, FailureNamesTheCall) {
  std::string why;
  Attention x = sizes(16);
  Memory memory(x);
  memory.at.q = nullptr;
  auto enqueue = cuda::makeDnnAttention(cuda::Device::of(0), x, memory.at, why);
  ASSERT_TRUE(enqueue) << why;
  cuda::Stream stream = cuda::makeStream();
  try {
    enqueue(stream.get());
    FAIL() << "it did not fail";
  } catch (const RuntimeError &error) {
    EXPECT_EQ(error.status, CLEAVE_RANK_FAILED);
    EXPECT_EQ(std::string(error.what()),
              "cudnnBackendExecute of the gradient of attention of 2 x 16 "
              "queries, 16 keys, 4 x 2 heads of 64 features: "
              "CUDNN_STATUS_BAD_PARAM (what is given is not what the graph has "
              "in memory)");
  }
}

TEST_F(DnnTest, ThreadsShareADevice) {
  int64_t before = count("plans");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([i] {
      cuda::Device &device = cuda::Device::of(0);
      device.use();
      Attention x = sizes(16 + i % 2, false);
      Memory memory(x);
      cuda::Stream stream = cuda::makeStream();
      for (int round = 0; round < 3; ++round)
        cuda::makeBestAttention(device, x, memory.at)(stream.get());
      cuda::check(cuda::driver().cuStreamSynchronize(stream.get()), "waiting");
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(count("plans") - before, 12);
}
