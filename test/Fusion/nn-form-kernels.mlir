// RUN: cleave-opt %s -split-input-file -nn-form-kernels | FileCheck %s

// A chain of elementwise operations with a broadcast is fused into one kernel.
// CHECK-LABEL: func.func @chain
// CHECK-SAME:    (%[[X:.+]]: tensor<4x6xf32>, %[[B:.+]]: tensor<6xf32>)
// CHECK-NEXT:    %[[R:.+]] = call @add_neg_0(%[[B]], %[[X]])
// CHECK-NEXT:    return %[[R]]
// CHECK:       func.func private @add_neg_0
// CHECK-SAME:    nn.extent = {{[0-9]+}}
// CHECK-SAME:    nn.inplace = array<i64: 0, 1>
// CHECK-SAME:    nn.kernel
func.func @chain(%x: tensor<4x6xf32>, %b: tensor<6xf32>) -> tensor<4x6xf32> {
  %0 = nn.broadcast %b dims = [1] : tensor<6xf32> -> tensor<4x6xf32>
  %1 = arith.addf %x, %0 : tensor<4x6xf32>
  %2 = arith.negf %1 : tensor<4x6xf32>
  return %2 : tensor<4x6xf32>
}

// -----

// Residual addition and norm are fused into a kernel with four results; library calls stay.
// CHECK-LABEL: func.func @norm
// CHECK-NEXT:    call @add_layer_norm_0
// CHECK-SAME:      -> (tensor<4x6xf32>, tensor<4xf32>, tensor<4x6xf32>)
// CHECK-NEXT:    nn.einsum
// CHECK-NEXT:    return
func.func @norm(%x: tensor<4x6xf32>, %y: tensor<4x6xf32>, %g: tensor<6xf32>, %w: tensor<6x5xf32>)
    -> (tensor<4x5xf32>, tensor<4x6xf32>, tensor<4xf32>) {
  %0 = arith.addf %x, %y : tensor<4x6xf32>
  %s = nn.save %0 : tensor<4x6xf32>
  %1, %mean, %rstd = nn.layer_norm %0, %g, %g epsilon = 1.0e-5
    : (tensor<4x6xf32>, tensor<6xf32>, tensor<6xf32>) -> (tensor<4x6xf32>, tensor<4xf32>, tensor<4xf32>)
  %2 = nn.einsum "ij,jk->ik" %1, %w : tensor<4x6xf32>, tensor<6x5xf32> -> tensor<4x5xf32>
  return %2, %s, %rstd : tensor<4x5xf32>, tensor<4x6xf32>, tensor<4xf32>
}

// -----

// A producer before a library call and a consumer after it are not fused: that
// would create a cycle.
// CHECK-LABEL: func.func @negative_cycle
// CHECK-NEXT:    call @neg_
// CHECK-NEXT:    nn.einsum
// CHECK-NEXT:    call @add_
// CHECK-NEXT:    return
func.func @negative_cycle(%x: tensor<6x6xf32>) -> tensor<6x6xf32> {
  %0 = arith.negf %x : tensor<6x6xf32>
  %1 = nn.einsum "ij,jk->ik" %0, %0 : tensor<6x6xf32>, tensor<6x6xf32> -> tensor<6x6xf32>
  %2 = arith.addf %0, %1 : tensor<6x6xf32>
  return %2 : tensor<6x6xf32>
}

// -----

// Both readers of a mask recompute it; the mask is never stored.
// CHECK-LABEL: func.func @mask
// CHECK-NEXT:    call @select_
// CHECK-NEXT:    nn.einsum
// CHECK-NEXT:    call @select_
// CHECK-NEXT:    return
func.func @mask(%x: tensor<6x6xf32>) -> tensor<6x6xf32> {
  %i = nn.iota dim = 0 : tensor<6x6xi64>
  %j = nn.iota dim = 1 : tensor<6x6xi64>
  %m = arith.cmpi sle, %j, %i : tensor<6x6xi64>
  %z = arith.constant dense<0.0> : tensor<6x6xf32>
  %0 = arith.select %m, %x, %z : tensor<6x6xi1>, tensor<6x6xf32>
  %1 = nn.einsum "ij,jk->ik" %0, %0 : tensor<6x6xf32>, tensor<6x6xf32> -> tensor<6x6xf32>
  %2 = arith.select %m, %1, %z : tensor<6x6xi1>, tensor<6x6xf32>
  return %2 : tensor<6x6xf32>
}

// -----

// Views (reshape, slice) and splat constants are not fused into kernels; a
// transpose that a library call reads becomes a kernel.
// CHECK-LABEL: func.func @placements
// CHECK-DAG:     nn.reshape
// CHECK-DAG:     nn.slice
// CHECK-DAG:     arith.constant dense<0.0
// CHECK-DAG:     call @transpose_
// CHECK-NOT:     call
// CHECK:         return
func.func @placements(%x: tensor<4x6xf32>) -> (tensor<24xf32>, tensor<2x6xf32>, tensor<6x4xf32>, tensor<3xf32>) {
  %0 = nn.reshape %x : tensor<4x6xf32> -> tensor<24xf32>
  %1 = nn.slice %x [1, 0] [2, 6] [1, 1] : tensor<4x6xf32> -> tensor<2x6xf32>
  %2 = nn.transpose %x [1, 0] : tensor<4x6xf32> -> tensor<6x4xf32>
  %3 = arith.constant dense<0.0> : tensor<3xf32>
  return %0, %1, %2, %3 : tensor<24xf32>, tensor<2x6xf32>, tensor<6x4xf32>, tensor<3xf32>
}

// -----

// A long sum is two kernels: partial sums of rows, then their sum.
// CHECK-LABEL: func.func @long_sum
// CHECK-NEXT:    %[[P:.+]] = call @mul_sum_0(%{{.+}}) : (tensor<64x500xf32>) -> tensor<64xf32>
// CHECK-NEXT:    %[[S:.+]] = call @sum_1(%[[P]]) : (tensor<64xf32>) -> tensor<f32>
// CHECK-NEXT:    return %[[S]]
func.func @long_sum(%x: tensor<64x500xf32>) -> tensor<f32> {
  %0 = arith.mulf %x, %x : tensor<64x500xf32>
  %1 = nn.reduce sum %0 dims = [0, 1] : tensor<64x500xf32> -> tensor<f32>
  return %1 : tensor<f32>
}
