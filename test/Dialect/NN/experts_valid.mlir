// RUN: cleave-opt %s | cleave-opt | FileCheck %s

// CHECK-LABEL: func @products
func.func @products(%x: tensor<2x5x2x6xf32>, %w: tensor<4x6x8xf32>, %v: tensor<4x8x6xf32>, %ids: tensor<2x5x2xi64>, %row: tensor<6xf32>, %id: tensor<i32>)
    -> (tensor<2x5x2x8xf32>, tensor<2x5x2x8xf32>, tensor<4x6x8xf32>, tensor<8xf32>) {
  // CHECK: nn.grouped_dot %{{.*}}, %{{.*}}, %{{.*}} : tensor<2x5x2x6xf32>, tensor<4x6x8xf32>, tensor<2x5x2xi64> -> tensor<2x5x2x8xf32>
  %0 = nn.grouped_dot %x, %w, %ids : tensor<2x5x2x6xf32>, tensor<4x6x8xf32>, tensor<2x5x2xi64> -> tensor<2x5x2x8xf32>
  // CHECK: nn.grouped_dot %{{.*}}, %{{.*}}, %{{.*}} transposed :
  %1 = nn.grouped_dot %x, %v, %ids transposed : tensor<2x5x2x6xf32>, tensor<4x8x6xf32>, tensor<2x5x2xi64> -> tensor<2x5x2x8xf32>
  // CHECK: nn.grouped_outer %{{.*}}, %{{.*}}, %{{.*}} : tensor<2x5x2x6xf32>, tensor<2x5x2x8xf32>, tensor<2x5x2xi64> -> tensor<4x6x8xf32>
  %2 = nn.grouped_outer %x, %0, %ids : tensor<2x5x2x6xf32>, tensor<2x5x2x8xf32>, tensor<2x5x2xi64> -> tensor<4x6x8xf32>
  // CHECK: nn.grouped_dot %{{.*}} : tensor<6xf32>, tensor<4x6x8xf32>, tensor<i32> -> tensor<8xf32>
  %3 = nn.grouped_dot %row, %w, %id : tensor<6xf32>, tensor<4x6x8xf32>, tensor<i32> -> tensor<8xf32>
  return %0, %1, %2, %3 : tensor<2x5x2x8xf32>, tensor<2x5x2x8xf32>, tensor<4x6x8xf32>, tensor<8xf32>
}
