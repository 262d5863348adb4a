// RUN: cleave-opt %s "--nn-add-loss=loss=output:mean" | FileCheck %s

// A mean is split into its sum and its count.
// CHECK-LABEL: func @loss
// CHECK:         %[[SUM:.+]] = nn.reduce sum
// CHECK:         %[[COUNT:.+]] = arith.constant dense<4.000000e+00>
// CHECK:         return %[[SUM]], %[[COUNT]]
func.func @forward(%w: tensor<4xf32> {nn.name = "w", nn.role = "parameter"})
    -> (tensor<f32> {nn.name = "mean", nn.role = "output"}, tensor<4xf32> {nn.name = "other", nn.role = "output"}) {
  %0 = nn.reduce sum %w dims = [0] : tensor<4xf32> -> tensor<f32>
  %n = arith.constant dense<4.0> : tensor<f32>
  %1 = arith.divf %0, %n : tensor<f32>
  return %1, %w : tensor<f32>, tensor<4xf32>
}
