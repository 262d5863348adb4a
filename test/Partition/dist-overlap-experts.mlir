// RUN: cleave-opt %s -dist-overlap-experts | FileCheck %s

dist.mesh @m <["x"=2]>

// A branch that all tokens share is computed during the exchange, with its operands.
// CHECK-LABEL: func @shared
// CHECK:         %[[ROWS:.+]] = dist.all_to_all_v
// CHECK-NEXT:    %[[HALF:.+]] = nn.sigmoid %arg0
// CHECK-NEXT:    %[[SHARED:.+]] = nn.einsum "rpk,kn->rpn" %[[HALF]]
// CHECK-NEXT:    %[[EXPERTS:.+]] = nn.einsum "rpk,kn->rpn" %[[ROWS]]
// CHECK-NEXT:    arith.addf %[[EXPERTS]], %[[SHARED]]
func.func @shared(%x: tensor<2x5x6xf32>, %n: tensor<2xi64>, %w: tensor<6x6xf32>) -> tensor<2x5x6xf32> {
  %0 = dist.all_to_all_v %x sent %n received %n expect [5] over @m {"x"} purpose expert : tensor<2x5x6xf32> counts tensor<2xi64>
  %1 = nn.einsum "rpk,kn->rpn" %0, %w : tensor<2x5x6xf32>, tensor<6x6xf32> -> tensor<2x5x6xf32>
  %2 = nn.sigmoid %x : tensor<2x5x6xf32>
  %3 = nn.einsum "rpk,kn->rpn" %2, %w : tensor<2x5x6xf32>, tensor<6x6xf32> -> tensor<2x5x6xf32>
  %4 = arith.addf %1, %3 : tensor<2x5x6xf32>
  return %4 : tensor<2x5x6xf32>
}

// Operations that depend on the exchanged tokens stay after it, as do collectives and
// their readers. The exchange of counts, and further rounds, are not overlapped.
// CHECK-LABEL: func @fixed
// CHECK:         %[[IDS:.+]] = dist.all_to_all_v
// CHECK-NEXT:    nn.reduce max %[[IDS]]
// CHECK-NEXT:    %[[ROWS:.+]] = dist.all_to_all_v
// CHECK-NEXT:    %[[A:.+]] = nn.einsum "rpk,kn->rpn" %[[ROWS]]
// CHECK-NEXT:    nn.einsum "rpk,kn->rpn" %[[A]]
// CHECK-NEXT:    %[[ALL:.+]] = dist.all_reduce
// CHECK-NEXT:    nn.einsum "rpk,kn->rpn" %[[ALL]]
// CHECK-NEXT:    %[[LATER:.+]] = dist.all_to_all_v {{.*}}nn.when = 1 : i64
// CHECK-NEXT:    nn.sigmoid %[[LATER]]
// CHECK-NEXT:    nn.einsum
func.func @fixed(%x: tensor<2x5x6xf32>, %ids: tensor<2x5xi64>, %n: tensor<2xi64>, %w: tensor<6x6xf32>)
    -> (tensor<2x5x6xf32>, tensor<2x5x6xf32>, tensor<2x5x6xf32>, tensor<2x5x6xf32>, tensor<i64>) {
  %0 = dist.all_to_all_v %ids sent %n received %n expect [5] over @m {"x"} purpose expert : tensor<2x5xi64> counts tensor<2xi64>
  %1 = nn.reduce max %0 dims = [0, 1] : tensor<2x5xi64> -> tensor<i64>
  %2 = dist.all_to_all_v %x sent %n received %n expect [5] over @m {"x"} purpose expert : tensor<2x5x6xf32> counts tensor<2xi64>
  %3 = nn.einsum "rpk,kn->rpn" %2, %w : tensor<2x5x6xf32>, tensor<6x6xf32> -> tensor<2x5x6xf32>
  %4 = nn.einsum "rpk,kn->rpn" %3, %w : tensor<2x5x6xf32>, tensor<6x6xf32> -> tensor<2x5x6xf32>
  %5 = dist.all_reduce sum %x over @m {"x"} purpose activation : tensor<2x5x6xf32>
  %6 = nn.einsum "rpk,kn->rpn" %5, %w : tensor<2x5x6xf32>, tensor<6x6xf32> -> tensor<2x5x6xf32>
  %7 = dist.all_to_all_v %x sent %n received %n expect [0] over @m {"x"} purpose overflow {nn.when = 1 : i64} : tensor<2x5x6xf32> counts tensor<2xi64>
  %8 = nn.sigmoid %7 : tensor<2x5x6xf32>
  %9 = nn.einsum "rpk,kn->rpn" %x, %w {nn.when = 1 : i64} : tensor<2x5x6xf32>, tensor<6x6xf32> -> tensor<2x5x6xf32>
  return %4, %6, %8, %9, %1 : tensor<2x5x6xf32>, tensor<2x5x6xf32>, tensor<2x5x6xf32>, tensor<2x5x6xf32>, tensor<i64>
}
