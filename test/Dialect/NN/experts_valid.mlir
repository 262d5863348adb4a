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

// CHECK-LABEL: func @order
func.func @order(%ids: tensor<2x5x3xi64>, %s: tensor<5xi64>, %one: tensor<2x5xi32>, %bs: tensor<2x5xi64>, %loads: tensor<6x4xi64>, %samples: tensor<2xi64>)
    -> (tensor<2x5x3xi64>, tensor<2x5xi32>) {
  // CHECK: nn.position_in_expert %{{.*}}, %{{.*}} experts = 4 : (tensor<2x5x3xi64>, tensor<5xi64>) -> tensor<2x5x3xi64>
  %0 = nn.position_in_expert %ids, %s experts = 4 : (tensor<2x5x3xi64>, tensor<5xi64>) -> tensor<2x5x3xi64>
  // CHECK: nn.position_in_expert %{{.*}}, %{{.*}} after(%{{.*}}, %{{.*}}) experts = 4 : (tensor<2x5xi32>, tensor<2x5xi64>, tensor<6x4xi64>, tensor<2xi64>) -> tensor<2x5xi32>
  %1 = nn.position_in_expert %one, %bs after(%loads, %samples) experts = 4 : (tensor<2x5xi32>, tensor<2x5xi64>, tensor<6x4xi64>, tensor<2xi64>) -> tensor<2x5xi32>
  return %0, %1 : tensor<2x5x3xi64>, tensor<2x5xi32>
}
