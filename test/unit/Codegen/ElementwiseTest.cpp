// Kernels of elementwise operations and views.

#include "Harness.h"

#include "gtest/gtest.h"

using namespace cleave::test;

TEST(ElementwiseKernel, ChainWithBias) {
  checkKernel(R"(
    func.func @k(%x: tensor<5x7x19xf32>, %y: tensor<5x7x19xf32>, %bias: tensor<19xf32>) -> tensor<5x7x19xf32> {
      %b = nn.broadcast %bias dims = [2] : tensor<19xf32> -> tensor<5x7x19xf32>
      %s = arith.addf %x, %b : tensor<5x7x19xf32>
      %c = arith.constant dense<0.5> : tensor<5x7x19xf32>
      %t = arith.mulf %s, %c : tensor<5x7x19xf32>
      %r = arith.addf %t, %y : tensor<5x7x19xf32>
      return %r : tensor<5x7x19xf32>
    })");
}

TEST(ElementwiseKernel, LongFlatWithScalars) {
  checkKernel(R"(
    func.func @k(%x: tensor<2500xf32>, %a: tensor<f32>) -> (tensor<2500xf32>, tensor<2500xi1>) {
      %b = nn.broadcast %a dims = [] : tensor<f32> -> tensor<2500xf32>
      %r = arith.mulf %x, %b : tensor<2500xf32>
      %m = arith.cmpf olt, %r, %x : tensor<2500xf32>
      return %r, %m : tensor<2500xf32>, tensor<2500xi1>
    })");
}
