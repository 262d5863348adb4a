// RUN: cleave-opt %s -split-input-file --strategy-expert=axis=x | FileCheck %s

// Expert matrices, and the bias table gathered by the same ids, are split over the axis,
// together with their gradients. Splits of other strategies stay. Products read the
// matrices gathered over the axis.
dist.mesh @mesh <["x"=2, "tensor"=2]>
// CHECK-LABEL: func @loss_grad
// CHECK-SAME:    tensor<4x6x8xf32> {dist.sharding = #dist.sharding<@mesh, [{"x"}, {}, {"tensor"}]>, nn.name = "w"
// CHECK-SAME:    tensor<4x8xf32> {dist.sharding = #dist.sharding<@mesh, [{"x"}, {}]>, nn.name = "bias"
// CHECK-SAME:    tensor<4x8xf32> {nn.name = "other"
// CHECK-SAME:    -> ({{.*}}tensor<4x6x8xf32> {dist.sharding = #dist.sharding<@mesh, [{"x"}, {}, {}], partial = sum{"tensor"}>, nn.name = "w", nn.role = #nn.role<gradient>})
// CHECK:         %[[W:.+]] = dist.constrain %{{.+}} <@mesh, [{}, {?}, {?}]> purpose expert
// CHECK:         nn.grouped_dot %{{.+}}, %[[W]], %
func.func @loss_grad(%x: tensor<3x2x6xf32> {nn.name = "x", nn.role = #nn.role<input>}, %ids: tensor<3x2xi64> {nn.name = "ids", nn.role = #nn.role<input>},
                     %at: tensor<3xi64> {nn.name = "at", nn.role = #nn.role<input>},
                     %w: tensor<4x6x8xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}, {"tensor"}]>, nn.name = "w", nn.role = #nn.role<parameter>},
                     %bias: tensor<4x8xf32> {nn.name = "bias", nn.role = #nn.role<parameter>},
                     %other: tensor<4x8xf32> {nn.name = "other", nn.role = #nn.role<parameter>})
    -> (tensor<3x2x8xf32>, tensor<3x8xf32>,
        tensor<4x6x8xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}, {}], partial = sum{"tensor"}>, nn.name = "w", nn.role = #nn.role<gradient>}) {
  %0 = nn.grouped_dot %x, %w, %ids : tensor<3x2x6xf32>, tensor<4x6x8xf32>, tensor<3x2xi64> -> tensor<3x2x8xf32>
  %kept = nn.save %ids : tensor<3x2xi64>
  %1 = nn.gather %bias, %kept dim = 0 : tensor<4x8xf32>, tensor<3x2xi64> -> tensor<3x2x8xf32>
  %2 = nn.gather %other, %at dim = 0 : tensor<4x8xf32>, tensor<3xi64> -> tensor<3x8xf32>
  %3 = arith.addf %0, %1 : tensor<3x2x8xf32>
  return %3, %2, %w : tensor<3x2x8xf32>, tensor<3x8xf32>, tensor<4x6x8xf32>
}

// -----

// An axis of one rank adds no sharding.
dist.mesh @mesh <["x"=1]>
// CHECK-LABEL: func @forward
// CHECK-NOT:     dist
func.func @forward(%x: tensor<3x6xf32>, %ids: tensor<3xi64>, %w: tensor<4x6x8xf32> {nn.name = "w", nn.role = #nn.role<parameter>}) -> tensor<3x8xf32> {
  %0 = nn.grouped_dot %x, %w, %ids : tensor<3x6xf32>, tensor<4x6x8xf32>, tensor<3xi64> -> tensor<3x8xf32>
  return %0 : tensor<3x8xf32>
}
