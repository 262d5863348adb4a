// RUN: cleave-opt %s -dist-sort-rows | FileCheck %s

// A recomputation that is ordered after rows with no other reader in token order is
// ordered after the sorted rows instead.
// CHECK-LABEL: func @waits
// CHECK:         %[[Y:.+]] = nn.grouped_dot
// CHECK-NOT:     nn.gather
// CHECK:         nn.rematerialize %{{.+}} after %[[TWICE:.+]] : tensor<3x8x6xf32>, tensor<5x8xf32>
// CHECK:         nn.grouped_dot
func.func @waits(%x: tensor<5x6xf32>, %w: tensor<3x6x8xf32>, %v: tensor<3x8x6xf32>, %ids: tensor<5xi64>) -> tensor<5x6xf32> {
  %0 = nn.grouped_dot %x, %w, %ids : tensor<5x6xf32>, tensor<3x6x8xf32>, tensor<5xi64> -> tensor<5x8xf32>
  %1 = arith.addf %0, %0 : tensor<5x8xf32>
  %2 = nn.rematerialize %v after %1 : tensor<3x8x6xf32>, tensor<5x8xf32>
  %3 = nn.grouped_dot %1, %2, %ids : tensor<5x8xf32>, tensor<3x8x6xf32>, tensor<5xi64> -> tensor<5x6xf32>
  return %3 : tensor<5x6xf32>
}

// The same after a chain of operations that ends in a constant.
// CHECK-LABEL: func @constants
// CHECK:         %[[Y:.+]] = nn.grouped_dot
// CHECK-NOT:     nn.gather
// CHECK:         nn.rematerialize %{{.+}} after %[[Y]] : tensor<3x8x6xf32>, tensor<5x8xf32>
func.func @constants(%x: tensor<5x6xf32>, %w: tensor<3x6x8xf32>, %v: tensor<3x8x6xf32>, %s: tensor<5x8xf32>, %ids: tensor<5xi64>)
    -> tensor<3x8x6xf32> {
  %0 = nn.grouped_dot %x, %w, %ids : tensor<5x6xf32>, tensor<3x6x8xf32>, tensor<5xi64> -> tensor<5x8xf32>
  %c = arith.constant dense<1.0> : tensor<5x8xf32>
  %1 = arith.subf %c, %s : tensor<5x8xf32>
  %2 = arith.mulf %0, %1 : tensor<5x8xf32>
  %3 = nn.rematerialize %v after %2 : tensor<3x8x6xf32>, tensor<5x8xf32>
  %5 = nn.grouped_outer %0, %x, %ids : tensor<5x8xf32>, tensor<5x6xf32>, tensor<5xi64> -> tensor<3x8x6xf32>
  %6 = arith.addf %3, %5 : tensor<3x8x6xf32>
  return %6 : tensor<3x8x6xf32>
}
