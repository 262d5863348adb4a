// Base class of tests on the simulated CUDA library that records calls (the
// recorder). The tests collect the errors that the recorder finds.
#ifndef CLEAVE_UNITTEST_CUDA_RECORDED_H
#define CLEAVE_UNITTEST_CUDA_RECORDED_H

#include "control.h"
#include "device.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <dlfcn.h>
#include <string>

namespace cleave::test {

class Recorded : public testing::Test {
public:
  // Must be called before the recorder is first used, because it reads its
  // settings then.
  static void prepare() {
    setenv("CLEAVE_RECORDER_KEEP_GOING", "1", 1);
    setenv("CLEAVE_RECORDER_DEVICES", "2", 1);
    setenv("CLEAVE_RECORDER_TIMEOUT", "20", 1);
  }

  // Returns the errors that the recorder has found since the last call.
  static std::string takeErrors() {
    static auto *take =
        find<decltype(&cleaveRecorderTakeErrors)>("cleaveRecorderTakeErrors");
    if (!take)
      return "the driver is not the recorder";
    std::string text(1 << 16, 0);
    take(text.data(), text.size());
    text.resize(text.find('\0'));
    return text;
  }

  static int64_t count(const char *what) {
    static auto *count =
        find<decltype(&cleaveRecorderCount)>("cleaveRecorderCount");
    return count ? count(what) : -1;
  }

private:
  template <class Function> static Function find(const char *name) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return library ? reinterpret_cast<Function>(dlsym(library, name)) : nullptr;
  }

protected:
  void SetUp() override {
    prepare();
    ASSERT_EQ(takeErrors(), "");
    cuda::Device::of(0).use();
  }
  // A test must take the errors that it provokes, so none may be left.
  void TearDown() override { EXPECT_EQ(takeErrors(), ""); }
};

} // namespace cleave::test

#endif // CLEAVE_UNITTEST_CUDA_RECORDED_H
