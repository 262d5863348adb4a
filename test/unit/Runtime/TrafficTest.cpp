// The memory traffic of commands, as traces report it.

#include "traffic.h"

#include <gtest/gtest.h>

using namespace cleave;
using namespace cleave::program;

namespace {
BufferRef somewhere() { return {0, 0, {}}; }

int64_t bytesOf(const auto &op) { return trafficOf(Program(), {op}); }

TEST(Traffic, KernelsSayWhatTheyReadAndWrite) {
  Program program;
  program.kernels = {{"plain", 2, {{64, false}, {32, true}}}, {"unknown", 2}};
  Launch launch;
  launch.args = {somewhere(), somewhere()};
  EXPECT_EQ(trafficOf(program, {launch}), 96);
  launch.kernel = 1;
  EXPECT_EQ(trafficOf(program, {launch}), 0);
}

TEST(Traffic, Products) {
  Gemm gemm;
  gemm.batch = {5};
  gemm.m = 2, gemm.n = 3, gemm.k = 4;
  gemm.a.batchStrides = {8};
  gemm.b.batchStrides = {0}; // one matrix for all
  gemm.c.batchStrides = {6};
  EXPECT_EQ(bytesOf(gemm), 4 * (5 * 8 + 12 + 5 * 6));
  gemm.accumulate = true;
  EXPECT_EQ(bytesOf(gemm), 4 * (5 * 8 + 12 + 2 * 5 * 6));
  gemm.dtype = DType::BF16;
  gemm.wideResult = true;
  gemm.bias = somewhere();
  EXPECT_EQ(bytesOf(gemm), 2 * (5 * 8 + 12 + 3) + 4 * 2 * 5 * 6);
  gemm.preActivation = somewhere();
  EXPECT_EQ(bytesOf(gemm), 2 * (5 * 8 + 12 + 3 + 30) + 4 * 2 * 5 * 6);
  gemm.preActivation = {};
  gemm.derivativeAt = somewhere();
  EXPECT_EQ(bytesOf(gemm), 2 * (5 * 8 + 12 + 3 + 30) + 4 * 2 * 5 * 6);
  gemm.derivativeAt = {};
  gemm.sums = somewhere();
  EXPECT_EQ(bytesOf(gemm), 2 * (5 * 8 + 12 + 3) + 4 * (2 * 5 * 6 + 2));
  gemm.sumsOf = GemmOperand::B;
  EXPECT_EQ(bytesOf(gemm), 2 * (5 * 8 + 12 + 3) + 4 * (2 * 5 * 6 + 3));

  GroupedGemm grouped;
  grouped.rows = {2, 10};
  grouped.e = 4, grouped.k = 3, grouped.n = 5;
  grouped.dtype = DType::BF16;
  grouped.wideResult = true; // f32 result, of rows or matrices
  EXPECT_EQ(bytesOf(grouped), 20 * (8 + 2 * 3 + 4 * 5) + 2 * 4 * 15);
  grouped.outer = true;
  EXPECT_EQ(bytesOf(grouped), 20 * (8 + 2 * 3 + 2 * 5) + 4 * 4 * 15);
}

TEST(Traffic, Attention) {
  Attention x;
  x.b = 2, x.qLen = 3, x.kLen = 5, x.n = 2, x.g = 4, x.d = 8, x.dv = 6;
  x.dtype = DType::BF16;
  int64_t rows = 2 * 3 * 2 * 4, keys = 2 * 5 * 2;
  int64_t arrays = rows * (8 + 6) + keys * (8 + 6);
  EXPECT_EQ(bytesOf(x), 2 * arrays + 4 * rows);
  x.backward = true;
  EXPECT_EQ(bytesOf(x), 4 * arrays + 4 * rows);
}

TEST(Traffic, ConvolutionsCopiesAndFills) {
  Convolution x;
  x.samples = 2, x.groups = 3, x.channels = 4, x.features = 5;
  x.input = {8, 8}, x.kernel = {3, 3}, x.output = {6, 6};
  EXPECT_EQ(bytesOf(x), 4 * (2 * 3 * (4 * 64 + 5 * 36) + 3 * 5 * 4 * 9));
  Copy copy;
  copy.shape = {3, 4};
  copy.elementSize = 2;
  EXPECT_EQ(bytesOf(copy), 48);
  Fill fill;
  fill.count = 6, fill.elementSize = 8;
  EXPECT_EQ(bytesOf(fill), 48);
}

TEST(Traffic, TransfersHaveNone) {
  EXPECT_EQ(bytesOf(Collective()), 0);
  EXPECT_EQ(bytesOf(Wait{3}), 0);
}
} // namespace
