// RUN: cleave-opt %s | FileCheck %s
// RUN: cleave-opt %s | cleave-opt | FileCheck %s

// CHECK-LABEL: func.func @recurrent
func.func @recurrent(%xs: tensor<5x2x3xf32>, %h0: tensor<2x3xf32>, %u: tensor<3x3xf32>) -> (tensor<2x3xf32>, tensor<5x2x3xf32>) {
  // CHECK: %[[LAST:.*]]:2 = nn.scan trips = 5 carries(%[[H:.*]] = %{{.*}} : tensor<2x3xf32>)
  // CHECK-SAME: slices(%[[X:.*]] = %{{.*}} : tensor<5x2x3xf32>) captures(%[[U:.*]] = %{{.*}} : tensor<3x3xf32>)
  // CHECK-SAME: -> tensor<2x3xf32>, tensor<5x2x3xf32> {
  // CHECK-NEXT: nn.einsum "bh,hk->bk" %[[H]], %[[U]]
  // CHECK-NEXT: arith.addf %{{.*}}, %[[X]]
  // CHECK-NEXT: nn.yield %{{.*}}, %{{.*}} : tensor<2x3xf32>, tensor<2x3xf32>
  %last, %ys = nn.scan trips = 5 carries(%h = %h0 : tensor<2x3xf32>) slices(%x = %xs : tensor<5x2x3xf32>) captures(%w = %u : tensor<3x3xf32>)
      -> tensor<2x3xf32>, tensor<5x2x3xf32> {
    %0 = nn.einsum "bh,hk->bk" %h, %w : tensor<2x3xf32>, tensor<3x3xf32> -> tensor<2x3xf32>
    %1 = arith.addf %0, %x : tensor<2x3xf32>
    nn.yield %1, %1 : tensor<2x3xf32>, tensor<2x3xf32>
  }
  return %last, %ys : tensor<2x3xf32>, tensor<5x2x3xf32>
}

// CHECK-LABEL: func.func @only_slices
func.func @only_slices(%xs: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK: nn.scan trips = 4 reverse slices(%{{.*}} = %{{.*}} : tensor<4xf32>) -> tensor<4xf32> {
  %ys = nn.scan trips = 4 reverse slices(%x = %xs : tensor<4xf32>) -> tensor<4xf32> {
    %0 = arith.negf %x : tensor<f32>
    nn.yield %0 : tensor<f32>
  }
  return %ys : tensor<4xf32>
}

// CHECK-LABEL: func.func @nothing
func.func @nothing() {
  // CHECK: nn.scan trips = 1 {
  nn.scan trips = 1 {
  }
  return
}
