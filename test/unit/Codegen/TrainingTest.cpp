// Kernels of dropout and optimizers.

#include "Harness.h"

#include "gtest/gtest.h"

using namespace cleave;
using namespace cleave::test;

namespace {
/// Inputs of a training step: positive second moments, a plausible step number
/// and a large seed.
RunOptions training() {
  RunOptions options;
  options.f32Bound = 4e-6;
  options.prepare = [](std::vector<Tensor> &arguments) {
    for (Tensor &tensor : arguments) {
      for (double &value : tensor.floats)
        value = std::abs(value) + 0.01;
      if (!tensor.isFloat() && tensor.size() == 1)
        tensor.ints[0] = 3;
    }
  };
  return options;
}
} // namespace

TEST(TrainingKernel, AdamW) {
  checkKernel(R"(
    func.func @k(%p: tensor<13x7xf32>, %m: tensor<13x7xf32>, %v: tensor<13x7xf32>, %g: tensor<13x7xf32>,
                 %scale: tensor<f32>, %lr: tensor<f32>, %step: tensor<i64>)
        -> (tensor<13x7xf32>, tensor<13x7xf32>, tensor<13x7xf32>) {
      %p1, %m1, %v1 = nn.adamw %p, %m, %v, %g, %scale, %lr, %step
        beta1 = 0.9 beta2 = 0.999 epsilon = 1.0e-8 weight_decay = 0.01 : tensor<13x7xf32>, tensor<f32>
      return %p1, %m1, %v1 : tensor<13x7xf32>, tensor<13x7xf32>, tensor<13x7xf32>
    })",
              training());
}

TEST(TrainingKernel, Sgd) {
  checkKernel(R"(
    func.func @k(%p: tensor<91xf32>, %b: tensor<91xf32>, %g: tensor<91xf32>, %scale: tensor<f32>, %lr: tensor<f32>)
        -> (tensor<91xf32>, tensor<91xf32>) {
      %p1, %b1 = nn.sgd %p, %b, %g, %scale, %lr momentum = 0.9 weight_decay = 0.1 : tensor<91xf32>, tensor<f32>
      return %p1, %b1 : tensor<91xf32>, tensor<91xf32>
    })",
              training());
}

TEST(TrainingKernel, Dropout) {
  RunOptions options;
  options.indexBound = 1 << 20;
  options.prepare = [](std::vector<Tensor> &arguments) {
    for (Tensor &tensor : arguments)
      if (!tensor.isFloat() && tensor.size() == 1)
        tensor.ints[0] = 0x123456789abcdef;
  };
  checkKernel(R"(
    func.func @k(%x: tensor<3x5x19xf32>, %seed: tensor<i64>, %step: tensor<i64>, %ids: tensor<3xi64>) -> tensor<3x5x19xf32> {
      %r = nn.dropout %x, %seed, %step, %ids p = 0.3 op_id = 7 global_shape = [3, 5, 19] : tensor<3x5x19xf32>, tensor<3xi64>
      return %r : tensor<3x5x19xf32>
    })",
              options);
}

TEST(TrainingKernel, DropoutOfTile) {
  RunOptions options;
  options.indexBound = 1 << 20;
  options.prepare = [](std::vector<Tensor> &arguments) {
    for (Tensor &tensor : arguments)
      if (!tensor.isFloat() && tensor.size() == 1)
        tensor.ints[0] = 10;
  };
  checkKernel(R"(
    func.func @k(%x: tensor<3x5x19xf32>, %seed: tensor<i64>, %step: tensor<i64>, %ids: tensor<3xi64>,
                 %o1: tensor<i64>, %o2: tensor<i64>) -> tensor<3x5x19xf32> {
      %r = nn.dropout %x, %seed, %step, %ids offsets(%o1, %o2) p = 0.5 op_id = 7 global_shape = [3, 20, 40] : tensor<3x5x19xf32>, tensor<3xi64>
      return %r : tensor<3x5x19xf32>
    })",
              options);
}
