// RUN: cleave-opt %s -dist-propagate -dist-plan-ops -dist-partition -dist-verify-variance | FileCheck %s

// Partial sums are reduced within a stage before the sum over stages, because other
// stages may have reduced theirs. Tiles stay split.
dist.mesh @m <["x"=2]>
// CHECK-LABEL: @sums
// CHECK-SAME: tensor<2x6xf32>
func.func @sums(%a: tensor<f32> {dist.sharding = #dist.sharding<@m, [], partial = sum{"x"}>},
                %g: tensor<4x6xf32> {dist.sharding = #dist.sharding<@m, [{"x"}, {}]>})
    -> (tensor<f32> {dist.sharding = #dist.sharding<@m, []>},
        tensor<4x6xf32> {dist.sharding = #dist.sharding<@m, [{"x"}, {}]>}) {
  // CHECK: [[WHOLE:%.*]] = dist.all_reduce
  // CHECK: pipe.sum_stages [[WHOLE]] : tensor<f32>
  %0 = pipe.sum_stages %a : tensor<f32>
  // CHECK: pipe.sum_stages %{{.*}} : tensor<2x6xf32>
  %1 = pipe.sum_stages %g : tensor<4x6xf32>
  return %0, %1 : tensor<f32>, tensor<4x6xf32>
}
