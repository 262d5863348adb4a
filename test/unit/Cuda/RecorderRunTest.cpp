// The recorder runs kernels in the form that is compiled for CPUs, and prints a
// log and a summary. These tests need a recorder that has not been used before.

#include "Recorded.h"

#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <vector>

using namespace cleave;
using namespace cleave::cuda;
using namespace cleave::test;

namespace {
struct Loaded {
  explicit Loaded(const char *image) {
    CUmodule made = nullptr;
    check(driver().cuModuleLoadData(&made, image), "loading");
    module = Module(made);
  }
  CUfunction find(const char *name) const {
    CUfunction found = nullptr;
    check(driver().cuModuleGetFunction(&found, module.get(), name), name);
    return found;
  }
  Module module;
};

class RecorderRunTest : public Recorded {};

TEST_F(RecorderRunTest, GeneratedKernelsRunByTheirFormsForCpus) {
  driver().kernels(RECORDER_KERNELS);
  Loaded loaded(".visible .entry add_index(.param .u64 a, .param .u64 b,\n"
                ".param .u64 c)\n{ ret; }");
  driver().kernels(nullptr);
  CUfunction function = loaded.find("add_index");
  DeviceMemory in(48, "in"), out(48, "out"), index(8, "the index");
  Stream stream = makeStream();
  std::vector<float> numbers(12), seen(12);
  for (int i = 0; i < 12; ++i)
    numbers[i] = float(i);
  int64_t five = 5;
  auto write = [&](const DeviceMemory &to, const void *from) {
    check(driver().cuMemcpyHtoDAsync(address(to.data()), from, to.size(),
                                     stream.get()),
          "writing");
  };
  write(in, numbers.data());
  write(index, &five);
  std::vector<cleave_access> accesses = {{in.data(), 48, 0},
                                         {out.data(), 48, 1}};
  cleave_note note = {};
  note.extent = 2; // of three rows
  note.accesses = accesses.data();
  note.num_accesses = 2;
  driver().note(stream.get(), &note);
  CUdeviceptr a = address(in.data()), b = address(out.data()),
              c = address(index.data());
  void *arguments[] = {&a, &b, &c};
  check(driver().cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream.get(),
                                arguments, nullptr),
        "launching");
  check(driver().cuMemcpyDtoHAsync(seen.data(), address(out.data()), 48,
                                   stream.get()),
        "reading");
  for (int i = 0; i < 12; ++i)
    EXPECT_EQ(seen[i], i < 8 ? float(i + 5) : 0.0f);
}

// Each of the following tests runs in a process of its own.
class RecorderDeathTest : public testing::Test {
protected:
  RecorderDeathTest() { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
  static void begin() {
    unsetenv("CLEAVE_RECORDER_KEEP_GOING");
    Device::of(0).use();
  }
};

TEST_F(RecorderDeathTest, AnErrorEndsTheProcess) {
  EXPECT_EXIT(
      {
        begin();
        Stream stream = makeStream();
        Event event = makeEvent();
        (void)driver().cuStreamWaitEvent(stream.get(), event.get(), 0);
        _exit(0);
      },
      testing::ExitedWithCode(99), "recorder: .* never recorded");
}

TEST_F(RecorderDeathTest, TellsWhatItHasSeen) {
  std::string path = testing::TempDir() + "recorder-log.jsonl";
  EXPECT_EXIT(
      {
        setenv("CLEAVE_RECORDER_LOG", path.c_str(), 1);
        setenv("CLEAVE_RECORDER_SUMMARY", "1", 1);
        begin();
        {
          DeviceMemory memory(64, "memory");
          Stream stream = makeStream();
          cleave_note note = {};
          note.action = "step";
          note.source = "a \"quoted\" name";
          driver().note(stream.get(), &note);
          check(driver().cuMemsetD8Async(address(memory.data()), 1, 64,
                                         stream.get()),
                "filling");
          check(driver().cuStreamSynchronize(stream.get()), "waiting");
        }
        exit(0);
      },
      testing::ExitedWithCode(0),
      "recorder: operations 2, .*nothing ran on a device");
  std::ifstream file(path);
  std::string line, last;
  int lines = 0;
  while (std::getline(file, line)) {
    last = line;
    ++lines;
  }
  EXPECT_EQ(lines, 2);
  for (const char *part :
       {"\"what\": \"fill\"", "\"action\": \"step\"",
        "\"source\": \"a \\\"quoted\\\" name\"", "\"writes\": [[", ", 64]]"})
    EXPECT_NE(last.find(part), std::string::npos) << last;
}

// The settings of the recorder simulate an old driver, a machine without a
// device, and a small device, for tests of error messages.
TEST_F(RecorderDeathTest, DevicesAreAsTheSettingsSay) {
  EXPECT_EXIT(
      {
        setenv("CLEAVE_RECORDER_DRIVER", "12020", 1);
        try {
          driver();
        } catch (const std::exception &error) {
          std::fprintf(stderr, "%s\n", error.what());
          _exit(3);
        }
        _exit(0);
      },
      testing::ExitedWithCode(3), "the driver serves CUDA 12.2");
  EXPECT_EXIT(
      {
        setenv("CLEAVE_RECORDER_DEVICES", "0", 1);
        try {
          driver();
        } catch (const std::exception &error) {
          std::fprintf(stderr, "%s\n", error.what());
          _exit(3);
        }
        _exit(0);
      },
      testing::ExitedWithCode(3), "no CUDA device was found");
  EXPECT_EXIT(
      {
        setenv("CLEAVE_RECORDER_CAPABILITY", "75", 1);
        setenv("CLEAVE_RECORDER_MEMORY", "1000", 1);
        begin();
        std::fprintf(stderr, "sm_%d\n", Device::of(0).capability());
        try {
          DeviceMemory memory(1001, "a tensor");
        } catch (const std::exception &error) {
          std::fprintf(stderr, "%s\n", error.what());
          _exit(3);
        }
        _exit(0);
      },
      testing::ExitedWithCode(3),
      "sm_75\na tensor needs 1001 bytes, but the device has 1000 of 1000");
}
} // namespace
