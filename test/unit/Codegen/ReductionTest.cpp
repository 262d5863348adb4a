// Kernels of reductions.

#include "Harness.h"

#include "gtest/gtest.h"

using namespace cleave;
using namespace cleave::test;

namespace {
RunOptions loose() {
  RunOptions options;
  options.f32Bound = 1e-5;
  options.f64Bound = 1e-13;
  options.floor = 10;
  return options;
}
} // namespace

TEST(ReductionKernel, AnyDimensions) {
  struct Case {
    const char *dims, *result;
  };
  for (Case c : {Case{"[0]", "tensor<5x19xf32>"},
                 {"[1]", "tensor<6x19xf32>"},
                 {"[2]", "tensor<6x5xf32>"},
                 {"[0, 1]", "tensor<19xf32>"},
                 {"[1, 2]", "tensor<6xf32>"},
                 {"[0, 2]", "tensor<5xf32>"},
                 {"[0, 1, 2]", "tensor<f32>"}})
    for (const char *kind : {"sum", "max", "min"}) {
      SCOPED_TRACE(std::string(kind) + " " + c.dims);
      checkKernel(std::string("func.func @k(%x: tensor<6x5x19xf32>) -> ") +
                      c.result + " {\n  %r = nn.reduce " + kind +
                      " %x dims = " + c.dims + " : tensor<6x5x19xf32> -> " +
                      c.result + "\n  return %r : " + c.result + "\n}",
                  loose());
    }
}

TEST(ReductionKernel, BiasAndGainGradientsTogether) {
  checkKernel(R"(
    func.func @k(%dy: tensor<40x7x35xf32>, %x: tensor<40x7x35xf32>, %mean: tensor<40x7xf32>, %rstd: tensor<40x7xf32>)
        -> (tensor<35xf32>, tensor<35xf32>) {
      %m = nn.broadcast %mean dims = [0, 1] : tensor<40x7xf32> -> tensor<40x7x35xf32>
      %s = nn.broadcast %rstd dims = [0, 1] : tensor<40x7xf32> -> tensor<40x7x35xf32>
      %c = arith.subf %x, %m : tensor<40x7x35xf32>
      %n = arith.mulf %c, %s : tensor<40x7x35xf32>
      %p = arith.mulf %dy, %n : tensor<40x7x35xf32>
      %gain = nn.reduce sum %p dims = [0, 1] : tensor<40x7x35xf32> -> tensor<35xf32>
      %bias = nn.reduce sum %dy dims = [0, 1] : tensor<40x7x35xf32> -> tensor<35xf32>
      return %gain, %bias : tensor<35xf32>, tensor<35xf32>
    })",
              loose());
}

TEST(ReductionKernel, ColumnsThenElementwise) {
  checkKernel(R"(
    func.func @k(%dy: tensor<9x70xf32>, %old: tensor<70xf32>) -> tensor<70xf32> {
      %sum = nn.reduce sum %dy dims = [0] : tensor<9x70xf32> -> tensor<70xf32>
      %r = arith.addf %sum, %old : tensor<70xf32>
      return %r : tensor<70xf32>
    })",
              loose());
}

TEST(ReductionKernel, VarianceOfColumns) {
  // The second sum reduces the same extent as the first one and depends on its
  // result.
  checkKernel(R"(
    func.func @k(%x: tensor<9x37xf32>) -> tensor<37xf32> {
      %ninth = arith.constant dense<0.11111111> : tensor<37xf32>
      %sum = nn.reduce sum %x dims = [0] : tensor<9x37xf32> -> tensor<37xf32>
      %mean = arith.mulf %sum, %ninth : tensor<37xf32>
      %m = nn.broadcast %mean dims = [1] : tensor<37xf32> -> tensor<9x37xf32>
      %c = arith.subf %x, %m : tensor<9x37xf32>
      %q = arith.mulf %c, %c : tensor<9x37xf32>
      %r = nn.reduce sum %q dims = [0] : tensor<9x37xf32> -> tensor<37xf32>
      return %r : tensor<37xf32>
    })",
              loose());
}

TEST(ReductionKernel, Integers) {
  checkKernel(R"(
    func.func @k(%x: tensor<4x21xi64>, %m: tensor<4x21xi1>) -> (tensor<4xi64>, tensor<4xi1>, tensor<4xi64>) {
      %r = nn.reduce sum %x dims = [1] : tensor<4x21xi64> -> tensor<4xi64>
      %any = nn.reduce max %m dims = [1] : tensor<4x21xi1> -> tensor<4xi1>
      %a = nn.argmax %x dim = 1 : tensor<4x21xi64> -> tensor<4xi64>
      return %r, %any, %a : tensor<4xi64>, tensor<4xi1>, tensor<4xi64>
    })");
}

TEST(ReductionKernel, ArgMaxOfFloats) {
  checkKernel(R"(
    func.func @k(%x: tensor<4x21xf32>) -> tensor<4xi64> {
      %a = nn.argmax %x dim = 1 : tensor<4x21xf32> -> tensor<4xi64>
      return %a : tensor<4xi64>
    })");
}
