// RUN: cleave-opt %s --nn-select-library=device=cuda | FileCheck %s
// RUN: cleave-opt %s --nn-select-library | FileCheck %s --check-prefix=CPU

// A linear layer after gelu: the GEMM applies gelu's derivative to the cotangent
// of the layer's input and rounds once. GEMMs of weight gradients also compute
// the bias gradients. On CPUs these are separate kernels.
// CHECK-LABEL: func @mixed
// CHECK-SAME:    (%[[DY:.+]]: tensor<2x4x5xbf16>, %[[W:.+]]: tensor<8x5xbf16>, %[[PRE:.+]]: tensor<2x4x8xbf16>, %[[H:.+]]: tensor<2x4x8xbf16>, %[[X:.+]]: tensor<2x4x3xbf16>)
// CHECK-NEXT:    %[[D:.+]] = rt.gemm a(%[[DY]] [0, 5, 1]) b(%[[W]] [0, 1, 5]) derivative_at(%[[PRE]]) c [0, 8, 1] m = 8 n = 8 k = 5 {activation = 1 : i32} : {{.*}} -> tensor<2x4x8xbf16>
// CHECK-NEXT:    %[[DW2:.+]]:2 = rt.gemm a(%[[H]] [0, 1, 8]) b(%[[DY]] [0, 5, 1]) c [0, 5, 1] m = 8 n = 5 k = 8 {sums_of = 2 : i32} : {{.*}} -> (tensor<8x5xf32>, tensor<5xf32>)
// CHECK-NEXT:    %[[DW1:.+]]:2 = rt.gemm a(%[[D]] [0, 1, 8]) b(%[[X]] [0, 3, 1]) c [0, 3, 1] m = 8 n = 3 k = 8 {sums_of = 1 : i32} : {{.*}} -> (tensor<8x3xf32>, tensor<8xf32>)
// CHECK-NEXT:    return %[[D]], %[[DW2]]#0, %[[DW2]]#1, %[[DW1]]#0, %[[DW1]]#1
// CPU-LABEL:   func @mixed
// CPU-NOT:       derivative_at
// CPU-NOT:       sums_of
// CPU:           nn.gelu_grad
// CPU:           return
func.func @mixed(%dy: tensor<2x4x5xbf16>, %w: tensor<8x5xbf16>, %pre: tensor<2x4x8xbf16>, %h: tensor<2x4x8xbf16>, %x: tensor<2x4x3xbf16>)
    -> (tensor<2x4x8xbf16>, tensor<8x5xf32>, tensor<5xf32>, tensor<8x3xf32>, tensor<8xf32>) {
  %0 = nn.einsum "abd,cd->abc" %dy, %w : tensor<2x4x5xbf16>, tensor<8x5xbf16> -> tensor<2x4x8xbf16>
  %1 = arith.extf %0 : tensor<2x4x8xbf16> to tensor<2x4x8xf32>
  %2 = arith.extf %pre : tensor<2x4x8xbf16> to tensor<2x4x8xf32>
  %3 = nn.gelu_grad tanh %1, %2 : tensor<2x4x8xf32>
  %4 = arith.truncf %3 : tensor<2x4x8xf32> to tensor<2x4x8xbf16>
  %5 = arith.extf %dy : tensor<2x4x5xbf16> to tensor<2x4x5xf32>
  %6 = nn.reduce sum %5 dims = [0, 1] : tensor<2x4x5xf32> -> tensor<5xf32>
  %7 = nn.einsum "abc,abd->cd" %h, %dy : tensor<2x4x8xbf16>, tensor<2x4x5xbf16> -> tensor<8x5xf32>
  %8 = arith.extf %4 : tensor<2x4x8xbf16> to tensor<2x4x8xf32>
  %9 = nn.reduce sum %8 dims = [0, 1] : tensor<2x4x8xf32> -> tensor<8xf32>
  %10 = nn.einsum "abc,abd->cd" %4, %x : tensor<2x4x8xbf16>, tensor<2x4x3xbf16> -> tensor<8x3xf32>
  return %4, %7, %6, %10, %9 : tensor<2x4x8xbf16>, tensor<8x5xf32>, tensor<5xf32>, tensor<8x3xf32>, tensor<8xf32>
}

// Without mixed precision; the GEMM accumulates into an earlier gradient. The
// bias gradient keeps its dimensions, and its reader is moved after the GEMM.
// CHECK-LABEL: func @plain
// CHECK-SAME:    (%[[DY:.+]]: tensor<4x2x3xf64>, %[[W:.+]]: tensor<8x2x3xf64>, %[[PRE:.+]]: tensor<4x8xf64>, %[[ACC:.+]]: tensor<8x2x3xf64>
// CHECK-NEXT:    %[[D:.+]] = rt.gemm {{.*}} derivative_at(%[[PRE]]) c [0, 8, 1] {{.*}} {activation = 1 : i32}
// CHECK-NEXT:    %[[G:.+]]:2 = rt.gemm {{.*}} accumulate(%[[ACC]]) c [0, 6, 1] m = 8 n = 6 k = 4 {sums_of = 2 : i32} : {{.*}} -> (tensor<8x2x3xf64>, tensor<2x3xf64>)
// CHECK-NEXT:    %[[B:.+]] = arith.addf %{{.+}}, %[[G]]#1
// CHECK-NEXT:    return %[[D]], %[[G]]#0, %[[B]]
func.func @plain(%dy: tensor<4x2x3xf64>, %w: tensor<8x2x3xf64>, %pre: tensor<4x8xf64>,
                 %acc: tensor<8x2x3xf64> {nn.role = #nn.role<gradient>}, %bias: tensor<2x3xf64> {nn.role = #nn.role<gradient>})
    -> (tensor<4x8xf64>, tensor<8x2x3xf64>, tensor<2x3xf64>) {
  %0 = nn.einsum "ade,cde->ac" %dy, %w : tensor<4x2x3xf64>, tensor<8x2x3xf64> -> tensor<4x8xf64>
  %1 = nn.gelu_grad tanh %0, %pre : tensor<4x8xf64>
  %2 = nn.reduce sum %dy dims = [0] : tensor<4x2x3xf64> -> tensor<2x3xf64>
  %3 = arith.addf %bias, %2 : tensor<2x3xf64>
  %4 = nn.einsum "ac,ade->cde" %pre, %dy : tensor<4x8xf64>, tensor<4x2x3xf64> -> tensor<8x2x3xf64>
  %5 = arith.addf %acc, %4 : tensor<8x2x3xf64>
  return %1, %5, %3 : tensor<4x8xf64>, tensor<8x2x3xf64>, tensor<2x3xf64>
}

// Not fused: gelu with erf, a cotangent with another reader, a cotangent read
// before it is rounded, and a transposed pre-activation.
// CHECK-LABEL: func @negative_derivative
// CHECK-NOT:     derivative_at
// CHECK:         return
func.func @negative_derivative(%dy: tensor<4x5xf32>, %w: tensor<8x5xf32>, %pre: tensor<4x8xf32>, %turned: tensor<8x4xf32>,
                               %n: tensor<4x5xbf16>, %v: tensor<8x5xbf16>, %at: tensor<4x8xbf16>)
    -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xbf16>, tensor<4x8xf32>) {
  %0 = nn.einsum "ad,cd->ac" %dy, %w : tensor<4x5xf32>, tensor<8x5xf32> -> tensor<4x8xf32>
  %1 = nn.gelu_grad erf %0, %pre : tensor<4x8xf32>
  %2 = nn.einsum "ad,cd->ac" %dy, %w : tensor<4x5xf32>, tensor<8x5xf32> -> tensor<4x8xf32>
  %3 = nn.gelu_grad tanh %2, %pre : tensor<4x8xf32>
  %4 = nn.einsum "ad,cd->ac" %n, %v : tensor<4x5xbf16>, tensor<8x5xbf16> -> tensor<4x8xbf16>
  %5 = arith.extf %4 : tensor<4x8xbf16> to tensor<4x8xf32>
  %6 = arith.extf %at : tensor<4x8xbf16> to tensor<4x8xf32>
  %7 = nn.gelu_grad tanh %5, %6 : tensor<4x8xf32>
  %8 = arith.truncf %7 : tensor<4x8xf32> to tensor<4x8xbf16>
  %9 = nn.einsum "ad,cd->ac" %dy, %w : tensor<4x5xf32>, tensor<8x5xf32> -> tensor<4x8xf32>
  %10 = nn.transpose %turned [1, 0] : tensor<8x4xf32> -> tensor<4x8xf32>
  %11 = nn.gelu_grad tanh %9, %10 : tensor<4x8xf32>
  return %1, %2, %3, %7, %8, %11 : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xbf16>, tensor<4x8xf32>
}

// Not fused: sums over other dimensions, maxima, products whose result is rounded,
// batched products, and sums read before the product's operands are known.
// CHECK-LABEL: func @negative_sums
// CHECK-NOT:     sums_of
// CHECK:         return
func.func @negative_sums(%dy: tensor<4x5xf32>, %x: tensor<4x8xf32>, %n: tensor<4x5xbf16>, %h: tensor<4x8xbf16>,
                         %part: tensor<2x4x5xf32>, %y: tensor<2x4x8xf32>)
    -> (tensor<8x5xf32>, tensor<4xf32>, tensor<5xf32>, tensor<8x5xbf16>, tensor<5xf32>, tensor<2x8x5xf32>, tensor<2x5xf32>, tensor<8x5xf32>) {
  %0 = nn.einsum "ac,ad->cd" %x, %dy : tensor<4x8xf32>, tensor<4x5xf32> -> tensor<8x5xf32>
  %1 = nn.reduce sum %dy dims = [1] : tensor<4x5xf32> -> tensor<4xf32>
  %2 = nn.reduce max %dy dims = [0] : tensor<4x5xf32> -> tensor<5xf32>
  %3 = nn.einsum "ac,ad->cd" %h, %n : tensor<4x8xbf16>, tensor<4x5xbf16> -> tensor<8x5xbf16>
  %4 = arith.extf %n : tensor<4x5xbf16> to tensor<4x5xf32>
  %5 = nn.reduce sum %4 dims = [0] : tensor<4x5xf32> -> tensor<5xf32>
  %6 = nn.einsum "bac,bad->bcd" %y, %part : tensor<2x4x8xf32>, tensor<2x4x5xf32> -> tensor<2x8x5xf32>
  %7 = nn.reduce sum %part dims = [1] : tensor<2x4x5xf32> -> tensor<2x5xf32>
  %8 = math.exp %dy : tensor<4x5xf32>
  %9 = nn.reduce sum %8 dims = [0] : tensor<4x5xf32> -> tensor<5xf32>
  %10 = nn.broadcast %9 dims = [1] : tensor<5xf32> -> tensor<4x5xf32>
  %11 = nn.concat %10, %10 dim = 1 : tensor<4x5xf32>, tensor<4x5xf32> -> tensor<4x10xf32>
  %12 = nn.slice %11 [0, 1] [4, 8] [1, 1] : tensor<4x10xf32> -> tensor<4x8xf32>
  %13 = nn.einsum "ac,ad->cd" %12, %8 : tensor<4x8xf32>, tensor<4x5xf32> -> tensor<8x5xf32>
  return %0, %1, %2, %3, %5, %6, %7, %13 : tensor<8x5xf32>, tensor<4xf32>, tensor<5xf32>, tensor<8x5xbf16>, tensor<5xf32>, tensor<2x8x5xf32>, tensor<2x5xf32>, tensor<8x5xf32>
}

// The product itself reads the sums of its operand.
// CHECK-LABEL: func @sums_times_operand
// CHECK:         %[[S:.+]] = nn.reduce sum
// CHECK:         rt.gemm a(%[[S]] [0, 32, 1])
// CHECK-NOT:     sums_of
// CHECK:         return
func.func @sums_times_operand(%x: tensor<32x32xf32>) -> tensor<1x32xf32> {
  %0 = nn.reduce sum %x dims = [0] : tensor<32x32xf32> -> tensor<32xf32>
  %1 = nn.reshape %0 : tensor<32xf32> -> tensor<1x32xf32>
  %2 = nn.einsum "ab,bc->ac" %1, %x : tensor<1x32xf32>, tensor<32x32xf32> -> tensor<1x32xf32>
  return %2 : tensor<1x32xf32>
}
