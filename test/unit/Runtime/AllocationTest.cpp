// After warm-up, neither the runtime nor the libraries that it calls allocate
// memory in a step. The memory pool hooks malloc: it sees every allocation of
// the process, and counts the allocations within a step that it could not serve
// from recycled memory.

#include "PipelineProgram.h"

#include "step_pool.h"

#include <cstring>
#include <malloc.h>

using namespace cleave;
using namespace cleave::program;
using namespace cleave::test;

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CLEAVE_NO_POOL
#endif
#endif

namespace {
void scale(const cleave_ctx *, void *const *args, int64_t begin, int64_t end) {
  auto *x = static_cast<float *>(args[0]);
  for (int64_t i = begin; i < end; ++i)
    x[i] *= 0.5f;
}

// A program with one command of every kind, at the sizes of a small model.
Program everything(DType dtype) {
  Program p;
  p.mesh = {{"data", 2, ""}};
  int64_t rows = 256, width = 192, size = sizeOf(dtype);
  BufferRef x = addBuffer(p, "x", {rows, width}, {}, dtype);
  BufferRef w = addBuffer(p, "w", {width, 2 * width}, {}, dtype);
  BufferRef y = addBuffer(p, "y", {rows, 2 * width}, {}, dtype);
  BufferRef z = addBuffer(p, "z", {rows, 2 * width}, {}, dtype);
  BufferRef o = addBuffer(p, "o", {rows, width}, {}, dtype);
  BufferRef lse = addBuffer(p, "lse", {rows, 6}, {}, dtype);
  BufferRef grads = addBuffer(p, "grads", {3, rows, width}, {}, dtype);
  auto at = [&](BufferRef ref, int64_t elements) {
    ref.offset += elements * size;
    return ref;
  };
  p.kernels = {{"scale", 1}};
  Action action;
  action.name = "step";
  auto add = [&](decltype(Command::op) op) {
    action.commands.push_back({std::move(op), 0, 0});
  };
  Gemm gemm;
  gemm.dtype = dtype;
  gemm.m = rows, gemm.n = 2 * width, gemm.k = width;
  gemm.a = {x, {}, width, 1};
  gemm.b = {w, {}, 2 * width, 1};
  gemm.c = {y, {}, 2 * width, 1};
  gemm.activation = Activation::GeluTanh;
  add(gemm);
  gemm.preActivation = z;
  gemm.bias = w;
  add(gemm);
  Gemm transposed; // dW = x^T y
  transposed.dtype = dtype;
  transposed.m = width, transposed.n = 2 * width, transposed.k = rows;
  transposed.a = {x, {}, 1, width};
  transposed.b = {y, {}, 2 * width, 1};
  transposed.c = {z, {}, 2 * width, 1};
  add(transposed);
  Attention attention;
  attention.dtype = dtype;
  attention.b = 2, attention.qLen = attention.kLen = 128;
  attention.n = 6, attention.d = attention.dv = 32;
  std::array<int64_t, 5> strides = {128 * width, width, 32, 32, 1};
  attention.q = attention.k = attention.v = attention.dO = {x, strides};
  attention.o = {o, strides};
  attention.lse = {lse, {768, 6, 1, 1, 0}};
  attention.causal = true;
  add(attention);
  attention.backward = true;
  attention.dq = {grads, strides};
  attention.dk = {at(grads, rows * width), strides};
  attention.dV = {at(grads, 2 * rows * width), strides};
  add(attention);
  add(Launch{0, {o}, 100, 8});
  Collective reduce;
  reduce.dtype = dtype;
  reduce.group = {{0, 1, 2}};
  reduce.parts = {{o, o, rows * width, 1, rows * width, 1, 0}};
  reduce.purpose = p.intern("gradient");
  add(reduce);
  add(Copy{
      o, x, static_cast<int32_t>(size), {rows, width}, {width, 1}, {width, 1}});
  add(Fill{y, 4, 16, 0});
  p.actions = {action};
  return p;
}

TEST(Allocation, NoStepAllocatesAfterWarmUp) {
#ifdef CLEAVE_NO_POOL
  GTEST_SKIP() << "the sanitizer has its own allocator";
#endif
  for (DType dtype : {DType::F32, DType::F64})
    for (int threads : {1, 2}) {
      ProgramHandle program(everything(dtype));
      ASSERT_EQ(program.status, CLEAVE_OK) << program.error;
      cleave_program_add_kernel(program.get, "scale", scale);
      SessionHandle session(program.get, threads);
      ASSERT_EQ(session.status, CLEAVE_OK) << session.error;
      for (int warmUp = 0; warmUp < 3; ++warmUp)
        ASSERT_EQ(cleave_session_run(session.get, "step"), CLEAVE_OK)
            << cleave_last_error();
      int64_t before = cleave_allocation_count(), taken = stepPoolBytes();
      bool good = true;
      for (int step = 0; step < 10; ++step)
        good &= cleave_session_run(session.get, "step") == CLEAVE_OK;
      EXPECT_EQ(cleave_allocation_count(), before);
      EXPECT_GT(before, 100); // the hook counts at all
      EXPECT_TRUE(good);
      EXPECT_EQ(stepPoolBytes(), taken);
      cleave_memory memory;
      cleave_session_memory(session.get, 0, &memory);
      EXPECT_EQ(memory.pool_bytes, taken);
      printf("%s, %d threads: pool of %lld bytes\n", nameOf(dtype), threads,
             static_cast<long long>(taken));
      if (dtype == DType::F32)
        EXPECT_GT(taken, 0); // the hook also counts oneDNN's allocations
    }
}

// Runs calls, transfers and their tracing.
TEST(Allocation, NoStepOfAPipelineAllocates) {
#ifdef CLEAVE_NO_POOL
  GTEST_SKIP() << "the sanitizer has its own allocator";
#endif
  ProgramHandle program(PipelineProgram({3, 2, 5}).p);
  SessionHandle session(program.get);
  ASSERT_EQ(session.status, CLEAVE_OK) << session.error;
  std::vector<cleave_trace_event> events(1000);
  int64_t reading = 0; // the host may allocate between steps
  for (bool traces : {false, true}) {
    cleave_session_trace(session.get, traces);
    auto step = [&] {
      bool good = cleave_session_run(session.get, "loss_grad") == CLEAVE_OK;
      int64_t before = cleave_allocation_count(), count = 0;
      for (int rank = 0; rank < 6; ++rank)
        cleave_session_trace_read(session.get, rank, events.data(), 1000,
                                  &count);
      EXPECT_EQ(count > 0, traces);
      reading += cleave_allocation_count() - before;
      return good;
    };
    for (int warmUp = 0; warmUp < 3; ++warmUp)
      ASSERT_TRUE(step()) << cleave_last_error();
    int64_t before = cleave_allocation_count();
    reading = 0;
    bool good = true;
    for (int round = 0; round < 10; ++round)
      good &= step();
    EXPECT_EQ(cleave_allocation_count() - before, reading);
    EXPECT_TRUE(good);
  }
}

// The allocator that replaces malloc must fulfil malloc's contract.
TEST(Allocation, PoolBehavesLikeMalloc) {
#ifdef CLEAVE_NO_POOL
  GTEST_SKIP() << "the sanitizer has its own allocator";
#endif
  // Assertions may allocate memory, so only the results are collected while
  // `step` exists, and they are checked afterwards.
  bool aligned = true, kept = true, zeroed = true;
  void *crossing = nullptr;
  void *before = malloc(100);
  {
    StepScope step;
    for (size_t alignment : {16, 64, 4096, 1 << 20}) {
      void *block = nullptr;
      aligned &= posix_memalign(&block, alignment, 100) == 0 &&
                 reinterpret_cast<uintptr_t>(block) % alignment == 0;
      free(block);
    }
    void *bad = nullptr;
    aligned &= posix_memalign(&bad, 3, 100) == EINVAL;
    char *block = static_cast<char *>(malloc(10));
    memcpy(block, "123456789", 10);
    for (size_t size : {20, 200, 100000, 30}) {
      block = static_cast<char *>(realloc(block, size));
      kept &= strcmp(block, "123456789") == 0;
    }
    free(block);
    auto *zeros = static_cast<char *>(calloc(10, 10));
    for (int i = 0; i < 100; ++i)
      zeroed &= zeros[i] == 0;
    free(zeros);
    free(before); // from libc, freed in a step
    crossing = malloc(50);
    free(nullptr);
  }
  free(crossing); // from the pool, freed outside
  EXPECT_TRUE(aligned);
  EXPECT_TRUE(kept);
  EXPECT_TRUE(zeroed);
}
} // namespace
