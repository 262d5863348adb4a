// RUN: cleave-opt %s | cleave-opt | FileCheck %s
// RUN: cleave-opt %s -cse -canonicalize | FileCheck %s

// CHECK-LABEL: @sums
func.func @sums(%g: tensor<7x4xf32>, %a: tensor<f32>, %b: tensor<f32>) -> (tensor<7x4xf32>, tensor<f32>, tensor<f32>) {
  // CHECK: pipe.sum_stages %{{.*}} {stages = array<i64: 0, 3>} : tensor<7x4xf32>
  %0 = pipe.sum_stages %g {stages = array<i64: 0, 3>} : tensor<7x4xf32>
  // CHECK: %{{.*}}:2 = pipe.sum_stages %{{.*}}, %{{.*}} : tensor<f32>, tensor<f32>
  %1:2 = pipe.sum_stages %a, %b : tensor<f32>, tensor<f32>
  return %0, %1#0, %1#1 : tensor<7x4xf32>, tensor<f32>, tensor<f32>
}

// The other stages wait for both: neither is merged nor removed.
// CHECK-LABEL: @kept
func.func @kept(%a: tensor<f32>) -> tensor<f32> {
  // CHECK-COUNT-3: pipe.sum_stages
  %0 = pipe.sum_stages %a : tensor<f32>
  %1 = pipe.sum_stages %a : tensor<f32>
  %2 = pipe.sum_stages %a : tensor<f32>
  %3 = arith.addf %0, %1 : tensor<f32>
  return %3 : tensor<f32>
}

// CHECK-LABEL: module @stage1
module @stage1 attributes {pipe.stage = 1 : i64, pipe.stages = 3 : i64} {
  func.func @update(%a: tensor<f32>) -> tensor<f32> {
    // CHECK: pipe.sum_stages
    %0 = pipe.sum_stages %a {stages = array<i64: 1, 2>} : tensor<f32>
    return %0 : tensor<f32>
  }
}
