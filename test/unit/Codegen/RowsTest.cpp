// Kernels that work on rows: norms, softmax, cross-entropy, their gradients,
// and rotary embeddings.

#include "Harness.h"

#include "gtest/gtest.h"

using namespace cleave;
using namespace cleave::test;

namespace {
RunOptions loose() {
  RunOptions options;
  options.f32Bound = 2e-5;
  options.f64Bound = 1e-13;
  return options;
}
} // namespace

TEST(RowKernel, LayerNormWithResidual) {
  checkKernel(R"(
    func.func @k(%x: tensor<3x5x19xf32>, %y: tensor<3x5x19xf32>, %g: tensor<19xf32>, %b: tensor<19xf32>)
        -> (tensor<3x5x19xf32>, tensor<3x5x19xf32>, tensor<3x5xf32>, tensor<3x5xf32>) {
      %s = arith.addf %x, %y : tensor<3x5x19xf32>
      %r, %mean, %rstd = nn.layer_norm %s, %g, %b epsilon = 1.0e-5
        : (tensor<3x5x19xf32>, tensor<19xf32>, tensor<19xf32>) -> (tensor<3x5x19xf32>, tensor<3x5xf32>, tensor<3x5xf32>)
      return %s, %r, %mean, %rstd : tensor<3x5x19xf32>, tensor<3x5x19xf32>, tensor<3x5xf32>, tensor<3x5xf32>
    })",
              loose());
}

TEST(RowKernel, LayerNormGradOfLongRows) {
  checkKernel(R"(
    func.func @k(%dy: tensor<4x100xf32>, %x: tensor<4x100xf32>, %g: tensor<100xf32>, %mean: tensor<4xf32>, %rstd: tensor<4xf32>, %res: tensor<4x100xf32>)
        -> tensor<4x100xf32> {
      %dx = nn.layer_norm_grad %dy, %x, %g, %mean, %rstd
        : (tensor<4x100xf32>, tensor<4x100xf32>, tensor<100xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<4x100xf32>
      %r = arith.addf %dx, %res : tensor<4x100xf32>
      return %r : tensor<4x100xf32>
    })",
              loose());
}

TEST(RowKernel, RmsNormAndGrad) {
  checkKernel(R"(
    func.func @k(%x: tensor<7x33xf32>, %g: tensor<33xf32>) -> (tensor<7x33xf32>, tensor<7xf32>) {
      %r, %rstd = nn.rms_norm %x, %g epsilon = 1.0e-6
        : (tensor<7x33xf32>, tensor<33xf32>) -> (tensor<7x33xf32>, tensor<7xf32>)
      return %r, %rstd : tensor<7x33xf32>, tensor<7xf32>
    })",
              loose());
  checkKernel(R"(
    func.func @k(%dy: tensor<7x33xf32>, %x: tensor<7x33xf32>, %g: tensor<33xf32>, %rstd: tensor<7xf32>) -> tensor<7x33xf32> {
      %r = nn.rms_norm_grad %dy, %x, %g, %rstd
        : (tensor<7x33xf32>, tensor<7x33xf32>, tensor<33xf32>, tensor<7xf32>) -> tensor<7x33xf32>
      return %r : tensor<7x33xf32>
    })",
              loose());
}

TEST(RowKernel, SquareInputHasUnambiguousRows) {
  // All dimensions have the same size, so sizes cannot tell which dimension is
  // the row.
  checkKernel(R"(
    func.func @k(%x: tensor<6x6xf32>, %g: tensor<6xf32>, %b: tensor<6xf32>) -> (tensor<6x6xf32>, tensor<6xf32>) {
      %r, %mean, %rstd = nn.layer_norm %x, %g, %b epsilon = 1.0e-5
        : (tensor<6x6xf32>, tensor<6xf32>, tensor<6xf32>) -> (tensor<6x6xf32>, tensor<6xf32>, tensor<6xf32>)
      return %r, %rstd : tensor<6x6xf32>, tensor<6xf32>
    })",
              loose());
}

TEST(RowKernel, Softmax) {
  checkKernel(R"(
    func.func @k(%x: tensor<2x3x21xf32>) -> tensor<2x3x21xf32> {
      %r = nn.softmax %x : tensor<2x3x21xf32>
      return %r : tensor<2x3x21xf32>
    })",
              loose());
}

TEST(RowKernel, SoftmaxOfOneRow) {
  checkKernel(R"(
    func.func @k(%x: tensor<21xf32>) -> tensor<21xf32> {
      %r = nn.softmax %x : tensor<21xf32>
      return %r : tensor<21xf32>
    })",
              loose());
}

TEST(RowKernel, CrossEntropyWithIgnoredAndForeignLabels) {
  RunOptions options = loose();
  options.prepare = [](std::vector<Tensor> &arguments) {
    for (Tensor &tensor : arguments)
      if (!tensor.isFloat()) {
        tensor.ints[0] = -100;
        tensor.ints[3] = 1000;
        tensor.ints[4] = -3;
        tensor.ints[5] = 36;
      }
  };
  checkKernel(R"(
    func.func @k(%x: tensor<2x5x37xf32>, %l: tensor<2x5xi64>) -> (tensor<2x5xf32>, tensor<2x5xf32>) {
      %loss, %lse = nn.cross_entropy %x, %l ignore_index = -100
        : (tensor<2x5x37xf32>, tensor<2x5xi64>) -> (tensor<2x5xf32>, tensor<2x5xf32>)
      return %loss, %lse : tensor<2x5xf32>, tensor<2x5xf32>
    })",
              options);
  checkKernel(R"(
    func.func @k(%g: tensor<2x5xf32>, %x: tensor<2x5x37xf32>, %l: tensor<2x5xi64>, %lse: tensor<2x5xf32>) -> tensor<2x5x37xf32> {
      %r = nn.cross_entropy_grad %g, %x, %l, %lse ignore_index = 2
        : (tensor<2x5xf32>, tensor<2x5x37xf32>, tensor<2x5xi64>, tensor<2x5xf32>) -> tensor<2x5x37xf32>
      return %r : tensor<2x5x37xf32>
    })",
              options);
}

// Each token chooses three experts. Their ids are converted in place to ids
// within a rank's tile of experts, while the weights of the chosen experts
// still read the original ids.
TEST(RowKernel, ChoicesInPlace) {
  RunOptions options;
  options.indexBound = 8;
  checkKernel(R"(
    func.func @k(%ids: tensor<4x9x3xi64>, %scores: tensor<4x9x8xf32>) -> (tensor<4x9x3xi64>, tensor<4x9x3xf32>) {
      %0 = arith.constant dense<4> : tensor<4x9x3xi64>
      %1 = arith.subi %ids, %0 : tensor<4x9x3xi64>
      %2 = nn.broadcast %ids dims = [0, 1, 3] : tensor<4x9x3xi64> -> tensor<4x9x8x3xi64>
      %n = nn.iota dim = 0 : tensor<8xi64>
      %3 = nn.broadcast %n dims = [2] : tensor<8xi64> -> tensor<4x9x8x3xi64>
      %4 = arith.cmpi eq, %2, %3 : tensor<4x9x8x3xi64>
      %5 = nn.broadcast %scores dims = [0, 1, 2] : tensor<4x9x8xf32> -> tensor<4x9x8x3xf32>
      %c = arith.constant dense<0.0> : tensor<4x9x8x3xf32>
      %6 = arith.select %4, %5, %c : tensor<4x9x8x3xi1>, tensor<4x9x8x3xf32>
      %7 = nn.reduce sum %6 dims = [2] : tensor<4x9x8x3xf32> -> tensor<4x9x3xf32>
      %8 = nn.reduce sum %7 dims = [2] : tensor<4x9x3xf32> -> tensor<4x9xf32>
      %9 = nn.broadcast %8 dims = [0, 1] : tensor<4x9xf32> -> tensor<4x9x3xf32>
      %10 = arith.divf %7, %9 : tensor<4x9x3xf32>
      return %1, %10 : tensor<4x9x3xi64>, tensor<4x9x3xf32>
    })",
              options);
}

TEST(RowKernel, Rotary) {
  for (const char *flags :
       {"", "inverse", "interleaved", "interleaved inverse"})
    for (const char *table : {"5x6", "2x5x6"}) {
      std::string t = std::string("tensor<") + table + "xf32>";
      checkKernel("func.func @k(%x: tensor<2x5x3x12xf32>, %c: " + t +
                  ", %s: " + t +
                  ") -> tensor<2x5x3x12xf32> {\n"
                  "  %r = nn.rotary %x, %c, %s " +
                  flags + " : tensor<2x5x3x12xf32>, " + t +
                  "\n  return %r : tensor<2x5x3x12xf32>\n}");
    }
}
