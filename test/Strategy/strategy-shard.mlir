// RUN: cleave-opt %s --strategy-shard -split-input-file | FileCheck %s

// The first dimension has size 12 in the file, viewed as 3 x 4 in the program. The
// second entry refers to a view. A given sharding replaces an earlier one.
module attributes {nn.shard = [
    #nn.shard<match = "head.*", dims = [#dist.axes<{}>, #dist.axes<{"tensor"}>]>,
    #nn.shard<match = "fused", dims = [#dist.axes<{}>, #dist.axes<{"tensor":(1)2}>, #dist.axes<{}>], view = [3, 4, 5]>]} {
  dist.mesh @mesh <["data"=2, "tensor"=4]>
  // CHECK-LABEL: func @loss_grad
  // CHECK-SAME:    tensor<6x8xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"tensor"}]>, nn.name = "head.w"
  // CHECK-SAME:    tensor<3x4x5xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"tensor":(1)2}, {}]>, nn.name = "fused"
  // CHECK-SAME:    tensor<6x8xf32> {nn.name = "other"
  // CHECK-SAME:    -> (tensor<6x8xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"tensor"}], partial = sum{"data"}>, nn.name = "head.w", nn.role = #nn.role<gradient>})
  // CHECK-NOT:   nn.shard
  func.func @loss_grad(%w: tensor<6x8xf32> {dist.sharding = #dist.sharding<@mesh, [{"tensor"}, {}]>, nn.name = "head.w", nn.role = #nn.role<parameter>},
                       %f: tensor<3x4x5xf32> {nn.name = "fused", nn.role = #nn.role<parameter>, nn.view = #nn.view<shape = [12, 5], view = [3, 4, 5]>},
                       %o: tensor<6x8xf32> {nn.name = "other", nn.role = #nn.role<parameter>})
      -> (tensor<6x8xf32> {dist.sharding = #dist.sharding<@mesh, [{"tensor"}, {}], partial = sum{"data"}>, nn.name = "head.w", nn.role = #nn.role<gradient>}) {
    return %w : tensor<6x8xf32>
  }
}

// -----

// Experts of one layer: the entry refers to their stacked tensor.
module attributes {nn.shard = [
    #nn.shard<match = "experts.*.w", dims = [#dist.axes<{"tensor"}>, #dist.axes<{}>, #dist.axes<{}>]>]} {
  dist.mesh @mesh <["tensor"=2]>
  // CHECK-LABEL: func @stack
  // CHECK-SAME:    tensor<2x6x4xf32> {dist.sharding = #dist.sharding<@mesh, [{"tensor"}, {}, {}]>, nn.name = "experts.0.w"
  func.func @stack(%w: tensor<2x6x4xf32> {nn.name = "experts.0.w", nn.role = #nn.role<parameter>, nn.parts = [#nn.part<name = "experts.0.w">, #nn.part<name = "experts.1.w">]}) { return }
}
