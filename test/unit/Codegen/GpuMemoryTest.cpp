// Memory accesses of GPU kernels: bf16 in memory, results in the memory of
// operands, and indices that depend on the rank.

#include "Harness.h"

#include "cleave/Fusion/Fusion.h"

#include "gtest/gtest.h"

#include <cmath>

using namespace mlir;
using namespace cleave;
using namespace cleave::test;

// Values are bf16 in memory and f32 in between.
TEST(GpuKernel, BFloat16Storage) {
  for (int64_t columns : {40, 264, 777, 40000}) {
    auto module =
        parse(fill(R"(
      func.func @k(%x: $0, %g: $2) -> ($0, $3) {
        %w = arith.extf %x : $0 to $1
        %r, %rstd = nn.rms_norm %w, %g epsilon = 1.0e-6 : ($1, $2) -> ($1, $3)
        %n = arith.truncf %r : $1 to $0
        return %n, %rstd : $0, $3
      })",
                   {tensor({3, columns}, "bf16"), tensor({3, columns}),
                    tensor({columns}), tensor({3})}));
    ASSERT_TRUE(module);
    auto kernel = module->lookupSymbol<func::FuncOp>("k");
    Tensor x(cast<RankedTensorType>(kernel.getArgumentTypes()[0])),
        g(cast<RankedTensorType>(kernel.getArgumentTypes()[1]));
    for (int64_t i = 0; i < x.size(); ++i)
      x.floats[i] = ((i * 37) % 101 - 50) / 32.0; // exact in bf16
    for (int64_t i = 0; i < g.size(); ++i)
      g.floats[i] = 1 + (i % 7) / 8.0;
    for (bool inPlace : {false, true}) {
      auto found = runKernelOnGpu(kernel, {x, g}, inPlace);
      ASSERT_EQ(found.size(), 2u);
      for (int64_t row = 0; row < 3; ++row) {
        double squares = 0;
        for (int64_t i = 0; i < columns; ++i)
          squares += std::pow(x.floats[row * columns + i], 2);
        double rstd = 1 / std::sqrt(squares / columns + 1e-6);
        EXPECT_NEAR(found[1].floats[row], rstd, 1e-6 * rstd);
        for (int64_t i = 0; i < columns; ++i) {
          double exact = x.floats[row * columns + i] * rstd * g.floats[i];
          EXPECT_NEAR(found[0].floats[row * columns + i], exact,
                      std::abs(exact) / 255);
        }
      }
    }
  }
}

// The slice removes the last columns, and the pad replaces them by a constant.
// All other elements keep their offsets, and a thread reads only the element
// that it writes. So the result may overwrite the operand's memory.
TEST(GpuKernel, FilledUpInPlace) {
  auto module = parse(R"(
    func.func @k(%x: tensor<3x136xf32>) -> tensor<3x136xf32> {
      %s = nn.slice %x [0, 0] [3, 129] [1, 1] : tensor<3x136xf32> -> tensor<3x129xf32>
      %p = nn.pad %s low = [0, 0] high = [0, 7] value = 5.0 : tensor<3x129xf32> -> tensor<3x136xf32>
      %r = arith.negf %p : tensor<3x136xf32>
      return %r : tensor<3x136xf32>
    })");
  ASSERT_TRUE(module);
  auto kernel = module->lookupSymbol<func::FuncOp>("k");
  ASSERT_TRUE(succeeded(kernels::annotateKernel(kernel)));
  EXPECT_EQ(kernel->getAttrOfType<DenseI64ArrayAttr>("nn.inplace").asArrayRef(),
            ArrayRef<int64_t>({0, 0}));
  Tensor x(cast<RankedTensorType>(kernel.getArgumentTypes()[0]));
  for (int64_t i = 0; i < x.size(); ++i)
    x.floats[i] = i;
  for (bool inPlace : {false, true}) {
    auto found = runKernelOnGpu(kernel, {x}, inPlace);
    ASSERT_EQ(found.size(), 1u);
    for (int64_t i = 0; i < x.size(); ++i)
      EXPECT_EQ(found[0].floats[i], i % 136 < 129 ? -double(i) : -5.0);
  }
}

// A result may overwrite values that all threads of a row read: by the time one
// thread writes the result, the other threads, also those of other blocks, must
// have read the values.
TEST(GpuKernel, RowValuesInPlace) {
  for (int64_t columns : {7, 64, 1000, 9000, 300000})
    checkKernel(
        fill(R"(func.func @k(%x: $0, %a: tensor<2xf32>) -> ($0, tensor<2xf32>) {
      %b = nn.broadcast %a dims = [0] : tensor<2xf32> -> $0
      %r = arith.mulf %x, %b : $0
      %c = arith.addf %a, %a : tensor<2xf32>
      return %r, %c : $0, tensor<2xf32>
    })",
             {tensor({2, columns})}),
        gpuOptions());
}

// The test harness runs the kernel as rank 1 of 2 along x and rank 2 of 3 along
// y.
TEST(GpuKernel, RankOffset) {
  auto module = parse(R"(
    dist.mesh @m <["x"=2, "y"=3]>
    func.func @k(%x: tensor<37xf32>) -> (tensor<37xf32>, tensor<37xi64>) {
      %o = dist.tile_offset tile 7 over @m {"x", "y"} : tensor<i64>
      %b = nn.broadcast %o dims = [] : tensor<i64> -> tensor<37xi64>
      %f = arith.sitofp %b : tensor<37xi64> to tensor<37xf32>
      %r = arith.addf %x, %f : tensor<37xf32>
      return %r, %b : tensor<37xf32>, tensor<37xi64>
    })");
  ASSERT_TRUE(module);
  auto kernel = module->lookupSymbol<func::FuncOp>("k");
  Tensor x(cast<RankedTensorType>(kernel.getArgumentTypes()[0]));
  for (int64_t i = 0; i < x.size(); ++i)
    x.floats[i] = i;
  auto found = runKernelOnGpu(kernel, {x});
  ASSERT_EQ(found.size(), 2u);
  for (int64_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(found[0].floats[i], i + 35);
    EXPECT_EQ(found[1].ints[i], 35);
  }
}
