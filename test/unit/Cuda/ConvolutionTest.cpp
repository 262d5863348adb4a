// Convolutions on a device: sizes that are refused, the workspace, and whether
// cuDNN or our kernels compute them. cleave-gpu-kernels tests the results.

#include "Recorded.h"

#include "cleave/workspace.h"
#include "convolution_plan.h"
#include "dnn.h"
#include "error.h"

using namespace cleave;
using namespace cleave::test;
using program::Convolution;
using program::ConvolutionKind;
using program::DType;

namespace {
Convolution sizes(DType type = DType::BF16,
                  ConvolutionKind kind = ConvolutionKind::Forward) {
  Convolution x;
  x.kind = kind, x.dtype = type;
  x.samples = 2, x.groups = 2, x.channels = 3, x.features = 4;
  x.input = {9, 8}, x.kernel = {3, 2}, x.output = {5, 7};
  x.strides = {2, 1}, x.dilations = {1, 1}, x.low = {1, 0}, x.high = {1, 0};
  return x;
}

struct Memory {
  explicit Memory(const Convolution &x)
      : all(3 * part, "arrays"), scratch(bytes(x) + 1, "workspace") {
    at = {all.data(), all.data() + part, all.data() + 2 * part, scratch.data()};
  }
  static int64_t bytes(const Convolution &x) {
    std::string error;
    return cuda::convolutionWorkspace(x, error);
  }
  static constexpr int64_t part = 16384;
  cuda::DeviceMemory all, scratch;
  ConvolutionBuffers at;
};

class DnnConvolutionTest : public Recorded {
protected:
  void SetUp() override {
    Recorded::SetUp();
    std::string why;
    if (!cuda::hasDnn(cuda::Device::of(0), why))
      GTEST_SKIP() << why;
  }
};
} // namespace

TEST(Convolution, SaysWhatIsWrong) {
  EXPECT_EQ(checkConvolution(sizes()), "");
  auto fault = [](auto change) {
    Convolution x = sizes();
    change(x);
    std::string error;
    EXPECT_EQ(cuda::convolutionWorkspace(x, error), -1);
    EXPECT_EQ(error, checkConvolution(x));
    return error;
  };
  EXPECT_EQ(fault([](Convolution &x) { x.dtype = DType::I32; }),
            "convolution in i32; expected f32, f64 or bf16");
  EXPECT_EQ(fault([](Convolution &x) { x.input = {1, 2, 3, 4}; }),
            "convolution over 4 dimensions; expected 1 to 3");
  EXPECT_EQ(fault([](Convolution &x) { x.low = {1}; }),
            "convolution whose low padding has 1 numbers; expected 2");
  EXPECT_EQ(fault([](Convolution &x) { x.strides[1] = 0; }),
            "convolution with 0 in its strides");
  EXPECT_EQ(fault([](Convolution &x) { x.groups = -1; }),
            "convolution with -1 in its numbers of samples, groups, channels "
            "and features");
  EXPECT_EQ(fault([](Convolution &x) { x.output[0] = 6; }),
            "convolution of 9 elements, padded by 1 and 1, by 3, strides 2, "
            "dilation 1, does not give 6");
  EXPECT_NE(fault([](Convolution &x) { x.dilations[1] = INT32_MAX; }), "");
}

TEST(Convolution, IndicesStayInRange) {
  Convolution x = sizes();
  EXPECT_TRUE(cuda::fitsKernels(x));
  x.samples = INT32_MAX; // more windows than that
  EXPECT_EQ(checkConvolution(x), "");
  EXPECT_FALSE(cuda::fitsKernels(x));
  EXPECT_EQ(Memory::bytes(x), -1);
  x = sizes();
  x.low[0] = x.strides[0] = INT32_MAX;
  x.output[0] = 2; // windows at -low and at 0
  EXPECT_EQ(checkConvolution(x), "");
  EXPECT_FALSE(cuda::fitsKernels(x));
}

TEST(Convolution, BoundsScratchMemory) {
  Convolution x = sizes();
  x.channels = 128, x.features = 128, x.samples = 32;
  x.input = x.output = {64, 64}, x.strides = {1, 1};
  x.kernel = {3, 3}, x.high = x.low = {1, 1};
  ASSERT_EQ(checkConvolution(x), "");
  int64_t arrays = 2 * (2 * 32 * 256 * 64 * 64 + 256 * 128 * 9);
  EXPECT_GE(Memory::bytes(x), arrays);
  EXPECT_LE(Memory::bytes(x), arrays + (1 << 20));
  x.kind = ConvolutionKind::FilterGrad; // and parts of its sums
  EXPECT_GE(Memory::bytes(x), arrays + 4 * 8 * 256 * 128 * 9);
  x.samples = 512; // more than 1 GiB
  EXPECT_LE(Memory::bytes(x), int64_t(33) << 20);
  x.dtype = DType::F64; // not for cuDNN
  EXPECT_EQ(Memory::bytes(x), 0);
}

TEST_F(DnnConvolutionTest, IsUsedOrNot) {
  cuda::Device &device = cuda::Device::of(0);
  cuda::Stream stream = cuda::makeStream();
  auto plansOf = [&](const Convolution &x, int64_t shift = 0) {
    Memory memory(x);
    memory.at.y = static_cast<char *>(memory.at.y) + shift;
    int64_t before = count("plans");
    cuda::makeBestConvolution(device, x, memory.at, false)(stream.get());
    cuda::check(cuda::driver().cuStreamSynchronize(stream.get()), "waiting");
    return count("plans") - before;
  };
  for (auto kind : {ConvolutionKind::Forward, ConvolutionKind::InputGrad,
                    ConvolutionKind::FilterGrad}) {
    EXPECT_EQ(plansOf(sizes(DType::BF16, kind)), 1);
    EXPECT_EQ(plansOf(sizes(DType::F32, kind)), 1);
    EXPECT_EQ(plansOf(sizes(DType::F64, kind)), 0);
    EXPECT_EQ(plansOf(sizes(DType::F32, kind), 8), 0);
  }
}

TEST_F(DnnConvolutionTest, SaysWhy) {
  std::string why;
  cuda::Device &device = cuda::Device::of(0);
  Memory memory(sizes());
  EXPECT_FALSE(cuda::makeDnnConvolution(device, sizes(DType::F64), memory.at,
                                        false, why));
  EXPECT_EQ(why, "it is in f64");
  memory.at.w = static_cast<char *>(memory.at.w) + 2;
  EXPECT_FALSE(
      cuda::makeDnnConvolution(device, sizes(), memory.at, false, why));
  EXPECT_EQ(why, "an array does not begin at a multiple of 16 bytes");
}

TEST_F(DnnConvolutionTest, FailureNamesTheCall) {
  std::string why;
  Convolution x = sizes(DType::F32, ConvolutionKind::FilterGrad);
  Memory memory(x);
  memory.at.w = nullptr;
  auto enqueue =
      cuda::makeDnnConvolution(cuda::Device::of(0), x, memory.at, false, why);
  ASSERT_TRUE(enqueue) << why;
  cuda::Stream stream = cuda::makeStream();
  try {
    enqueue(stream.get());
    FAIL() << "it did not fail";
  } catch (const RuntimeError &error) {
    EXPECT_EQ(error.status, CLEAVE_RANK_FAILED);
    EXPECT_EQ(std::string(error.what()),
              "cudnnBackendExecute of the filter's gradient of a convolution "
              "of 2 x 6 x 9 x 8 by 8 x 3 x 3 x 2: CUDNN_STATUS_BAD_PARAM (what "
              "is given is not what the graph has in memory)");
  }
}
