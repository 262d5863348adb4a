// Kernels with views that are not contiguous, and kernels with indices that are
// loaded from memory.

#include "Harness.h"

#include "gtest/gtest.h"

using namespace cleave;
using namespace cleave::test;

namespace {
/// Options with which some indices are out of bounds of the table.
RunOptions foreign() {
  RunOptions options;
  options.indexBound = 11;
  options.prepare = [](std::vector<Tensor> &arguments) {
    for (Tensor &tensor : arguments)
      if (!tensor.isFloat() && tensor.size() > 3) {
        tensor.ints[1] = -1;
        tensor.ints[2] = 1000;
      }
  };
  return options;
}
} // namespace

TEST(IndexingKernel, GatherRows) {
  checkKernel(R"(
    func.func @k(%t: tensor<11x13xf32>, %i: tensor<2x5xi64>, %p: tensor<5x13xf32>) -> tensor<2x5x13xf32> {
      %g = nn.gather %t, %i dim = 0 : tensor<11x13xf32>, tensor<2x5xi64> -> tensor<2x5x13xf32>
      %b = nn.broadcast %p dims = [1, 2] : tensor<5x13xf32> -> tensor<2x5x13xf32>
      %r = arith.addf %g, %b : tensor<2x5x13xf32>
      return %r : tensor<2x5x13xf32>
    })",
              foreign());
}

TEST(IndexingKernel, GatherColumns) {
  checkKernel(R"(
    func.func @k(%t: tensor<3x11xf32>, %i: tensor<19xi32>) -> tensor<3x19xf32> {
      %g = nn.gather %t, %i dim = 1 : tensor<3x11xf32>, tensor<19xi32> -> tensor<3x19xf32>
      return %g : tensor<3x19xf32>
    })",
              foreign());
}

TEST(IndexingKernel, GatherAtComputedIndices) {
  checkKernel(R"(
    func.func @k(%t: tensor<11x13xf32>, %i: tensor<10xi64>) -> tensor<10x13xf32> {
      %c = arith.constant dense<3> : tensor<10xi64>
      %j = arith.subi %i, %c : tensor<10xi64>
      %g = nn.gather %t, %j dim = 0 : tensor<11x13xf32>, tensor<10xi64> -> tensor<10x13xf32>
      return %g : tensor<10x13xf32>
    })",
              foreign());
}

TEST(IndexingKernel, GatherOfAGather) {
  checkKernel(R"(
    func.func @k(%t: tensor<27x12xf32>, %i: tensor<3x3x3xi64>, %j: tensor<27xi64>) -> tensor<27x12xf32> {
      %m = arith.mulf %t, %t : tensor<27x12xf32>
      %g = nn.gather %m, %i dim = 0 : tensor<27x12xf32>, tensor<3x3x3xi64> -> tensor<3x3x3x12xf32>
      %l = nn.reshape %g : tensor<3x3x3x12xf32> -> tensor<27x12xf32>
      %r = nn.gather %l, %j dim = 0 : tensor<27x12xf32>, tensor<27xi64> -> tensor<27x12xf32>
      return %r : tensor<27x12xf32>
    })",
              foreign());
}

TEST(IndexingKernel, ScatterAdd) {
  checkKernel(R"(
    func.func @k(%i: tensor<4x9xi64>, %u: tensor<4x9x13xf32>) -> tensor<11x13xf32> {
      %n = arith.negf %u : tensor<4x9x13xf32>
      %r = nn.scatter_add %i, %n dim = 0 : tensor<4x9xi64>, tensor<4x9x13xf32> -> tensor<11x13xf32>
      return %r : tensor<11x13xf32>
    })",
              foreign());
  checkKernel(R"(
    func.func @k(%i: tensor<9xi64>, %u: tensor<3x9x2xf32>) -> tensor<3x11x2xf32> {
      %r = nn.scatter_add %i, %u dim = 1 : tensor<9xi64>, tensor<3x9x2xf32> -> tensor<3x11x2xf32>
      return %r : tensor<3x11x2xf32>
    })",
              foreign());
}

TEST(IndexingKernel, Transposes) {
  checkKernel(R"(
    func.func @k(%x: tensor<2x5x3x19xf32>) -> tensor<2x3x5x19xf32> {
      %r = nn.transpose %x [0, 2, 1, 3] : tensor<2x5x3x19xf32> -> tensor<2x3x5x19xf32>
      return %r : tensor<2x3x5x19xf32>
    })");
  checkKernel(R"(
    func.func @k(%x: tensor<17x37xf32>) -> tensor<37x17xf32> {
      %n = arith.negf %x : tensor<17x37xf32>
      %r = nn.transpose %n [1, 0] : tensor<17x37xf32> -> tensor<37x17xf32>
      return %r : tensor<37x17xf32>
    })");
}

TEST(IndexingKernel, SliceConcatPad) {
  checkKernel(R"(
    func.func @k(%x: tensor<4x20xf32>, %y: tensor<4x3xf32>) -> (tensor<4x9xf32>, tensor<9x26xf32>) {
      %s = nn.slice %x [0, 2] [4, 6] [1, 3] : tensor<4x20xf32> -> tensor<4x6xf32>
      %r = nn.slice %y [0, 2] [4, 3] [1, -1] : tensor<4x3xf32> -> tensor<4x3xf32>
      %c = nn.concat %s, %r dim = 1 : tensor<4x6xf32>, tensor<4x3xf32> -> tensor<4x9xf32>
      %p = nn.pad %x low = [2, 1] high = [3, 5] value = -1.5 : tensor<4x20xf32> -> tensor<9x26xf32>
      return %c, %p : tensor<4x9xf32>, tensor<9x26xf32>
    })");
}

TEST(IndexingKernel, ConcatOfRows) {
  checkKernel(R"(
    func.func @k(%x: tensor<4x20xf32>, %y: tensor<3x20xf32>, %z: tensor<2x20xf32>) -> tensor<9x20xf32> {
      %c = nn.concat %x, %y, %z dim = 0 : tensor<4x20xf32>, tensor<3x20xf32>, tensor<2x20xf32> -> tensor<9x20xf32>
      return %c : tensor<9x20xf32>
    })");
}

// The slice reads only padding, none of the concatenated pieces.
TEST(IndexingKernel, NothingButPaddingAroundAConcat) {
  checkKernel(R"(
    func.func @k(%x: tensor<4x2xf32>, %y: tensor<4x3xf32>) -> tensor<4x3xf32> {
      %c = nn.concat %x, %y dim = 1 : tensor<4x2xf32>, tensor<4x3xf32> -> tensor<4x5xf32>
      %p = nn.pad %c low = [0, 4] high = [0, 0] value = 2.0 : tensor<4x5xf32> -> tensor<4x9xf32>
      %s = nn.slice %p [0, 0] [4, 3] [1, 1] : tensor<4x9xf32> -> tensor<4x3xf32>
      %r = arith.mulf %s, %s : tensor<4x3xf32>
      return %r : tensor<4x3xf32>
    })");
}

TEST(IndexingKernel, ReshapeThroughOddSizes) {
  checkKernel(R"(
    func.func @k(%x: tensor<6x35xf32>, %b: tensor<7xf32>) -> tensor<6x35xf32> {
      %s = nn.reshape %x : tensor<6x35xf32> -> tensor<30x7xf32>
      %c = nn.broadcast %b dims = [1] : tensor<7xf32> -> tensor<30x7xf32>
      %a = arith.addf %s, %c : tensor<30x7xf32>
      %t = nn.transpose %a [1, 0] : tensor<30x7xf32> -> tensor<7x30xf32>
      %r = nn.reshape %t : tensor<7x30xf32> -> tensor<6x35xf32>
      return %r : tensor<6x35xf32>
    })");
}

TEST(IndexingKernel, MaskFromIndexGrids) {
  checkKernel(R"(
    func.func @k(%x: tensor<2x9x9xf32>) -> (tensor<2x9x9xf32>, tensor<9x9xi1>, tensor<9x9xi64>) {
      %i = nn.iota dim = 1 : tensor<2x9x9xi64>
      %j = nn.iota dim = 2 : tensor<2x9x9xi64>
      %m = arith.cmpi sle, %j, %i : tensor<2x9x9xi64>
      %z = arith.constant dense<0.0> : tensor<2x9x9xf32>
      %r = arith.select %m, %x, %z : tensor<2x9x9xi1>, tensor<2x9x9xf32>
      %i2 = nn.iota dim = 0 : tensor<9x9xi64>
      %j2 = nn.iota dim = 1 : tensor<9x9xi64>
      %m2 = arith.cmpi sle, %j2, %i2 : tensor<9x9xi64>
      return %r, %m2, %j2 : tensor<2x9x9xf32>, tensor<9x9xi1>, tensor<9x9xi64>
    })");
}

TEST(IndexingKernel, ConstantTable) {
  checkKernel(R"(
    func.func @k(%x: tensor<2x5xf32>) -> (tensor<2x5xf32>, tensor<2x5xi1>) {
      %t = arith.constant dense<[1.0, 2.5, -3.0, 0.25, 7.0]> : tensor<5xf32>
      %b = nn.broadcast %t dims = [1] : tensor<5xf32> -> tensor<2x5xf32>
      %r = arith.mulf %x, %b : tensor<2x5xf32>
      %m = arith.constant dense<[true, false, false, true, true]> : tensor<5xi1>
      %c = nn.broadcast %m dims = [1] : tensor<5xi1> -> tensor<2x5xi1>
      return %r, %c : tensor<2x5xf32>, tensor<2x5xi1>
    })");
}
