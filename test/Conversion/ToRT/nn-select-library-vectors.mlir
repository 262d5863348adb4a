// RUN: cleave-opt %s --nn-select-library=device=cuda | FileCheck %s
// RUN: cleave-opt %s --nn-select-library | FileCheck %s --check-prefix=CPU

// Each token's weighted sum over its experts: 64 products with one row each.
// CHECK-LABEL: func @weighted_sum
// CHECK-NOT:     rt.gemm
// CHECK:         %[[P:.+]] = arith.mulf %{{.*}} : tensor<4x16x8x2xf32>
// CHECK-NEXT:    %[[S:.+]] = nn.reduce sum %[[P]] dims = [3]
// CHECK-NEXT:    %[[R:.+]] = arith.truncf %[[S]] : tensor<4x16x8xf32> to tensor<4x16x8xbf16>
// CHECK-NEXT:    return %[[R]]
// CPU-LABEL:   func @weighted_sum
// CPU:           rt.gemm {{.*}} batch = [64] m = 1 n = 8 k = 2
func.func @weighted_sum(%y: tensor<4x16x2x8xbf16>, %w: tensor<4x16x2xbf16>) -> tensor<4x16x8xbf16> {
  %0 = nn.einsum "bskh,bsk->bsh" %y, %w : tensor<4x16x2x8xbf16>, tensor<4x16x2xbf16> -> tensor<4x16x8xbf16>
  return %0 : tensor<4x16x8xbf16>
}

// The gradient of the combine weights.
// CHECK-LABEL: func @weights
// CHECK-NOT:     rt.gemm
// CHECK:         nn.reduce sum %{{.*}} dims = [3] : tensor<4x16x2x8xf32> -> tensor<4x16x2xf32>
// CPU-LABEL:   func @weights
// CPU:           rt.gemm
func.func @weights(%y: tensor<4x16x2x8xbf16>, %d: tensor<4x16x8xbf16>) -> tensor<4x16x2xbf16> {
  %0 = nn.einsum "bsh,bskh->bsk" %d, %y : tensor<4x16x8xbf16>, tensor<4x16x2x8xbf16> -> tensor<4x16x2xbf16>
  return %0 : tensor<4x16x2xbf16>
}

// A small batch of one-row products, and products with several rows, stay GEMMs.
// CHECK-LABEL: func @negative_few
// CHECK:         rt.gemm {{.*}} batch = [4]
// CHECK:         rt.gemm {{.*}} batch = [64] m = 3 n = 5 k = 7
func.func @negative_few(%a: tensor<4x1x7xf32>, %b: tensor<4x7x5xf32>, %c: tensor<64x3x7xf32>, %d: tensor<64x7x5xf32>) -> (tensor<4x1x5xf32>, tensor<64x3x5xf32>) {
  %0 = nn.einsum "bmk,bkn->bmn" %a, %b : tensor<4x1x7xf32>, tensor<4x7x5xf32> -> tensor<4x1x5xf32>
  %1 = nn.einsum "bmk,bkn->bmn" %c, %d : tensor<64x3x7xf32>, tensor<64x7x5xf32> -> tensor<64x3x5xf32>
  return %0, %1 : tensor<4x1x5xf32>, tensor<64x3x5xf32>
}
