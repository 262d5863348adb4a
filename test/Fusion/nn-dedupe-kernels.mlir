// RUN: cleave-opt %s -nn-form-kernels -nn-dedupe-kernels | FileCheck %s

// The same computation under other names and on other values is one kernel; a
// different constant makes a different kernel.
// CHECK-LABEL: func.func @f
// CHECK-NEXT:    %[[A:.+]] = call @add_mul_0
// CHECK-NEXT:    %[[B:.+]] = nn.einsum
// CHECK-NEXT:    %[[C:.+]] = call @add_mul_0
// CHECK-NEXT:    %[[D:.+]] = nn.einsum
// CHECK-NEXT:    %[[E:.+]] = call @add_mul_1
// CHECK-NEXT:    return
// CHECK-COUNT-2: func.func private @add_mul
// CHECK-NOT:     func.func private
func.func @f(%x: tensor<6x6xf32>, %y: tensor<6x6xf32>) -> tensor<6x6xf32> {
  %two = arith.constant dense<2.0> : tensor<6x6xf32>
  %three = arith.constant dense<3.0> : tensor<6x6xf32>
  %a0 = arith.addf %x, %y : tensor<6x6xf32>
  %a1 = arith.mulf %a0, %two : tensor<6x6xf32>
  %b = nn.einsum "ij,jk->ik" %a1, %x : tensor<6x6xf32>, tensor<6x6xf32> -> tensor<6x6xf32>
  %c0 = arith.addf %b, %y : tensor<6x6xf32>
  %c1 = arith.mulf %c0, %two : tensor<6x6xf32>
  %d = nn.einsum "ij,jk->ik" %c1, %x : tensor<6x6xf32>, tensor<6x6xf32> -> tensor<6x6xf32>
  %e0 = arith.addf %d, %y : tensor<6x6xf32>
  %e1 = arith.mulf %e0, %three : tensor<6x6xf32>
  return %e1 : tensor<6x6xf32>
}
