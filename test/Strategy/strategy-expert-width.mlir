// RUN: cleave-opt %s -split-input-file --strategy-expert="axis=x tensor-axis=y" -verify-diagnostics | FileCheck %s

// The hidden width of the experts is split over axis y and no other axis. The
// features, which other layers also read, are not split.
dist.mesh @mesh <["x"=2, "y"=2, "tensor"=2]>
// CHECK-LABEL: func @forward
// CHECK-SAME:    tensor<6x6xf32> {nn.name = "in"
// CHECK-SAME:    tensor<4x6x8xf32> {dist.sharding = #dist.sharding<@mesh, [{"x"}, {}, {"y"}]>, nn.name = "w"
// CHECK-SAME:    tensor<4x8xf32> {dist.sharding = #dist.sharding<@mesh, [{"x"}, {"y"}]>, nn.name = "bias"
// CHECK-SAME:    tensor<4x8x6xf32> {dist.sharding = #dist.sharding<@mesh, [{"x"}, {"y"}, {}]>, nn.name = "down"
func.func @forward(%x: tensor<3x6xf32> {nn.name = "x", nn.role = #nn.role<input>}, %ids: tensor<3xi64> {nn.name = "ids", nn.role = #nn.role<input>},
                   %in: tensor<6x6xf32> {nn.name = "in", nn.role = #nn.role<parameter>},
                   %w: tensor<4x6x8xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}, {"tensor"}]>, nn.name = "w", nn.role = #nn.role<parameter>},
                   %bias: tensor<4x8xf32> {nn.name = "bias", nn.role = #nn.role<parameter>},
                   %down: tensor<4x8x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"tensor"}, {}]>, nn.name = "down", nn.role = #nn.role<parameter>}) -> tensor<3x6xf32> {
  %0 = nn.einsum "bh,hg->bg" %x, %in : tensor<3x6xf32>, tensor<6x6xf32> -> tensor<3x6xf32>
  %1 = nn.grouped_dot %0, %w, %ids : tensor<3x6xf32>, tensor<4x6x8xf32>, tensor<3xi64> -> tensor<3x8xf32>
  %2 = nn.gather %bias, %ids dim = 0 : tensor<4x8xf32>, tensor<3xi64> -> tensor<3x8xf32>
  %3 = arith.addf %1, %2 : tensor<3x8xf32>
  %4 = nn.grouped_dot %3, %down, %ids : tensor<3x8xf32>, tensor<4x8x6xf32>, tensor<3xi64> -> tensor<3x6xf32>
  %5 = arith.addf %0, %4 : tensor<3x6xf32>
  return %5 : tensor<3x6xf32>
}

// -----

dist.mesh @mesh <["x"=2, "y"=2]>
// expected-error @below {{has no width of experts that axis 'y' could split}}
func.func @forward(%x: tensor<3x6xf32> {nn.name = "x", nn.role = #nn.role<input>}, %ids: tensor<3xi64> {nn.name = "ids", nn.role = #nn.role<input>},
                   %in: tensor<6x6xf32> {nn.name = "in", nn.role = #nn.role<parameter>},
                   %w: tensor<4x6x6xf32> {nn.name = "w", nn.role = #nn.role<parameter>}) -> tensor<3x6xf32> {
  %0 = nn.einsum "bh,hg->bg" %x, %in : tensor<3x6xf32>, tensor<6x6xf32> -> tensor<3x6xf32>
  %1 = nn.grouped_dot %0, %w, %ids : tensor<3x6xf32>, tensor<4x6x6xf32>, tensor<3xi64> -> tensor<3x6xf32>
  %2 = arith.addf %0, %1 : tensor<3x6xf32>
  return %2 : tensor<3x6xf32>
}
