// Tests that the recorder, the simulated CUDA library, reports errors and only
// errors.

#include "Recorded.h"

#include "cleave/runtime.h"
#include "error.h"
#include "kernels.h"

#include <cstring>
#include <vector>

using namespace cleave;
using namespace cleave::cuda;
using namespace cleave::test;

namespace {
class RecorderTest : public Recorded {
protected:
  static void expectError(std::initializer_list<std::string> parts) {
    std::string errors = takeErrors();
    EXPECT_FALSE(errors.empty());
    for (const std::string &part : parts)
      EXPECT_NE(errors.find(part), std::string::npos)
          << "\"" << part << "\" is not in: " << errors;
  }

  static void fill(const DeviceMemory &memory, int value, CUstream stream,
                   int64_t bytes = -1) {
    check(driver().cuMemsetD8Async(address(memory.data()), value,
                                   bytes < 0 ? memory.size() : bytes, stream),
          "filling");
  }
  static std::vector<char> read(const DeviceMemory &memory, CUstream stream) {
    std::vector<char> out(memory.size());
    check(driver().cuMemcpyDtoHAsync(out.data(), address(memory.data()),
                                     out.size(), stream),
          "reading");
    return out;
  }
  static void copy(const DeviceMemory &to, const DeviceMemory &from,
                   CUstream stream) {
    check(driver().cuMemcpyDtoDAsync(address(to.data()), address(from.data()),
                                     to.size(), stream),
          "copying");
  }
};

TEST_F(RecorderTest, HasEveryFunctionOfTheDriver) {
  EXPECT_NE(driver().note, nullptr);
  EXPECT_NE(driver().kernels, nullptr);
  EXPECT_EQ(Device::count(), 2);
  EXPECT_EQ(Device::of(0).capability(), 90);
}

TEST_F(RecorderTest, CorrectProgramsAreSilent) {
  DeviceMemory a(1000, "a"), b(1000, "b");
  {
    Stream one = makeStream(), two = makeStream();
    Event event = makeEvent();
    for (int step = 0; step < 3; ++step) {
      fill(a, step + 1, one.get());
      after(one.get(), event.get(), two.get());
      copy(b, a, two.get());
      after(two.get(), event.get(), one.get());
    }
    EXPECT_EQ(read(b, two.get()), std::vector<char>(1000, 3));
    check(driver().cuStreamSynchronize(one.get()), "waiting");
  }
  // The host has waited for the first stream, so operations that are enqueued
  // on another stream now come after it.
  Stream three = makeStream();
  fill(b, 9, three.get());
  EXPECT_EQ(read(b, three.get()), std::vector<char>(1000, 9));
}

TEST_F(RecorderTest, FindsAMissingEvent) {
  DeviceMemory a(1000, "a"), b(1000, "b");
  Stream one = makeStream(), two = makeStream();
  cleave_note note = {};
  note.rank = 3;
  note.action = "step";
  note.source = "h.0/add";
  note.command = 7;
  driver().note(one.get(), &note);
  fill(a, 1, one.get());
  EXPECT_EQ(takeErrors(), "");
  copy(b, a, two.get());
  expectError({"copy", "fill", "reads 1000 bytes", "no event orders", "rank 3",
               "action step", "command 7", "h.0/add"});
  // A write after a read conflicts, too. Accesses to parts that do not overlap
  // do not conflict.
  check(driver().cuMemsetD8Async(address(a.data()), 0, 1, one.get()),
        "filling");
  expectError({"fill", "copy", "writes 1 bytes", "no event orders"});
  check(driver().cuStreamSynchronize(one.get()), "waiting");
  check(driver().cuStreamSynchronize(two.get()), "waiting");
  check(driver().cuMemsetD8Async(address(a.data()), 0, 500, one.get()), "");
  check(driver().cuMemsetD8Async(address(a.data() + 500), 0, 500, two.get()),
        "");
  EXPECT_EQ(takeErrors(), "");
  check(driver().cuStreamSynchronize(one.get()), "waiting");
  check(driver().cuStreamSynchronize(two.get()), "waiting");
}

TEST_F(RecorderTest, FindsAnEventThatWasRecordedTooEarly) {
  DeviceMemory a(64, "a"), b(64, "b");
  Stream one = makeStream(), two = makeStream();
  Event event = makeEvent();
  check(driver().cuEventRecord(event.get(), one.get()), "");
  fill(a, 1, one.get());
  check(driver().cuStreamWaitEvent(two.get(), event.get(), 0), "");
  copy(b, a, two.get());
  expectError({"no event orders"});
  Event never = makeEvent();
  check(driver().cuStreamWaitEvent(two.get(), never.get(), 0), "");
  expectError({"never recorded"});
  check(driver().cuStreamSynchronize(one.get()), "waiting");
  check(driver().cuStreamSynchronize(two.get()), "waiting");
}

TEST_F(RecorderTest, FindsWhatIsOutOfBounds) {
  DeviceMemory a(1000, "a");
  Stream stream = makeStream();
  fill(a, 1, stream.get(), 1001);
  expectError({"out of bounds", "writes 1001 bytes"});
  check(driver().cuStreamSynchronize(stream.get()), "waiting");
  // A write that the recorder is not told about is found when the memory is
  // freed.
  {
    DeviceMemory b(10, "b");
    b.data()[-1] = 0;
  }
  expectError({"wrote outside", "at byte -1"});
}

TEST_F(RecorderTest, FindsMemoryThatIsFreedTooEarly) {
  Stream stream = makeStream();
  {
    DeviceMemory a(1000, "a");
    fill(a, 1, stream.get());
  }
  expectError({"freed", "fill"});
  check(driver().cuStreamSynchronize(stream.get()), "waiting");
}

TEST_F(RecorderTest, FindsMemoryOfAnotherDevice) {
  DeviceMemory a(64, "a");
  Device::of(1).use();
  Stream stream = makeStream();
  fill(a, 1, stream.get());
  expectError({"peer access"});
  check(driver().cuStreamSynchronize(stream.get()), "waiting");
}

//--- Kernels -----------------------------------------------------------------

TEST_F(RecorderTest, LaunchesTouchWhatTheirNotesSay) {
  DeviceMemory a(64, "a"), b(64, "b");
  Stream one = makeStream(), two = makeStream();
  CUmodule loaded = nullptr;
  check(driver().cuModuleLoadData(
            &loaded, ".visible .entry twice(.param .u64 twice_param_0,\n"
                     " .param .u32 twice_param_1)\n{ ret; }"),
        "loading");
  Module module(loaded);
  CUfunction function = nullptr;
  EXPECT_EQ(driver().cuModuleGetFunction(&function, module.get(), "thrice"),
            CUDA_ERROR_NOT_FOUND);
  check(driver().cuModuleGetFunction(&function, module.get(), "twice"), "");
  auto launch = [&](CUstream stream, const DeviceMemory &memory, bool written,
                    int64_t bytes) {
    cleave_access access = {memory.data(), bytes, written};
    cleave_note note = {};
    note.source = "twice";
    note.accesses = &access;
    note.num_accesses = 1;
    driver().note(stream, &note);
    CUdeviceptr at = address(memory.data());
    int32_t count = 3;
    void *arguments[] = {&at, &count};
    return driver().cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream,
                                   arguments, nullptr);
  };
  EXPECT_EQ(launch(one.get(), a, true, 64), CUDA_SUCCESS);
  EXPECT_EQ(launch(two.get(), b, true, 64), CUDA_SUCCESS);
  EXPECT_EQ(takeErrors(), "");
  EXPECT_EQ(launch(two.get(), a, false, 64), CUDA_SUCCESS);
  expectError({"launch of twice", "no event orders"});
  EXPECT_EQ(launch(one.get(), b, false, 65), CUDA_SUCCESS);
  expectError({"launch of twice", "out of bounds"});
  EXPECT_EQ(driver().cuLaunchKernel(function, 1, 1, 1, 1025, 1, 1, 0, one.get(),
                                    nullptr, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  check(driver().cuStreamSynchronize(one.get()), "waiting");
  check(driver().cuStreamSynchronize(two.get()), "waiting");
}

// A launch must not have more threads than the kernel declares, nor more shared
// memory than was requested for it.
TEST_F(RecorderTest, LaunchesThatNoDeviceTakes) {
  Stream stream = makeStream();
  Kernels &kernels = Kernels::of(Device::of(0));
  CUfunction fill = kernels.find("cleave_fill"),
             sort = kernels.find("cleave_sort_rows"),
             place = kernels.find("cleave_position_in_expert");
  auto launch = [&](CUfunction function, unsigned threads, unsigned shared) {
    return driver().cuLaunchKernel(function, 1, 1, 1, threads, 1, 1, shared,
                                   stream.get(), nullptr, nullptr);
  };
  auto ask = [](CUfunction function, int bytes) {
    return driver().cuFuncSetAttribute(
        function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes);
  };
  EXPECT_EQ(launch(fill, 257, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(fill, 256, 49 << 10), CUDA_ERROR_INVALID_VALUE);
  // The kernel `place` itself declares more than 16 KiB of shared memory, so 33
  // KiB in addition are too much.
  EXPECT_EQ(launch(place, 32, 33 << 10), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ask(place, 227 << 10), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ask(place, 64 << 10), CUDA_SUCCESS);
  EXPECT_EQ(launch(sort, 32, 64 << 10), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(RecorderTest, EventsAreRecordedOnTheirDevice) {
  Stream here = makeStream();
  Device::of(1).use();
  Stream there = makeStream();
  Event event = makeEvent();
  EXPECT_EQ(driver().cuEventRecord(event.get(), here.get()),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(driver().cuEventRecord(event.get(), there.get()), CUDA_SUCCESS);
  EXPECT_EQ(driver().cuStreamWaitEvent(here.get(), event.get(), 0),
            CUDA_SUCCESS);
  Device::of(0).use();
}

//--- Graphs ------------------------------------------------------------------

TEST_F(RecorderTest, CapturesAreReplayed) {
  DeviceMemory a(64, "a"), b(64, "b"), c(64, "c");
  Stream one = makeStream(), two = makeStream();
  Event forth = makeEvent(), back = makeEvent();
  auto capture = [&](bool joins) {
    check(driver().cuStreamBeginCapture(one.get(),
                                        CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
          "");
    copy(b, a, one.get());
    after(one.get(), forth.get(), two.get());
    copy(c, b, two.get());
    if (joins)
      after(two.get(), back.get(), one.get());
    CUgraph graph = nullptr;
    CUresult status = driver().cuStreamEndCapture(one.get(), &graph);
    return std::pair(status, graph);
  };
  EXPECT_EQ(capture(false).first, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  auto [status, graph] = capture(true);
  check(status, "capturing");
  CUgraphExec made = nullptr;
  check(driver().cuGraphInstantiateWithFlags(&made, graph, 0), "");
  check(driver().cuGraphDestroy(graph), "");
  GraphExec exec(made);
  // Nothing has run.
  EXPECT_EQ(read(c, one.get()), std::vector<char>(64, 0));
  for (int step = 1; step < 3; ++step) {
    fill(a, step, one.get());
    check(driver().cuGraphLaunch(exec.get(), one.get()), "");
    EXPECT_EQ(read(c, one.get()), std::vector<char>(64, char(step)));
  }
  EXPECT_EQ(takeErrors(), "");
  // The accesses of a graph are checked, too: no event orders the graph after
  // the fill on the other stream.
  fill(a, 1, two.get());
  check(driver().cuGraphLaunch(exec.get(), one.get()), "");
  expectError({"no event orders", "fill", "copy"});
  check(driver().cuStreamSynchronize(one.get()), "waiting");
  check(driver().cuStreamSynchronize(two.get()), "waiting");
}

TEST_F(RecorderTest, CapturesForbidWhatCudaForbids) {
  DeviceMemory a(64, "a");
  Stream one = makeStream(), two = makeStream();
  Event event = makeEvent();
  CUgraph graph = nullptr;
  auto begin = [&] {
    check(
        driver().cuStreamBeginCapture(one.get(), CU_STREAM_CAPTURE_MODE_GLOBAL),
        "");
  };
  begin();
  EXPECT_EQ(driver().cuStreamSynchronize(one.get()),
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(driver().cuStreamEndCapture(one.get(), &graph),
            CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  check(driver().cuEventRecord(event.get(), two.get()), "");
  begin();
  EXPECT_EQ(driver().cuStreamWaitEvent(one.get(), event.get(), 0),
            CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  EXPECT_EQ(driver().cuStreamEndCapture(one.get(), &graph),
            CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  begin();
  CUdeviceptr memory = 0;
  EXPECT_EQ(driver().cuMemAlloc(&memory, 64),
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(driver().cuStreamEndCapture(one.get(), &graph),
            CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}
} // namespace
