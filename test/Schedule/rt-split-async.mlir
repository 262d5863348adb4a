// RUN: cleave-opt %s -rt-split-async -rt-verify-order | FileCheck %s

func.func private @k(tensor<8xf32>) -> tensor<8xf32>

// The transfer goes on while @k is computed.
// CHECK-LABEL: func @ahead(
// CHECK:         %[[GO:.+]]:2 = rt.collective permute(%[[X:.+]]) {{.*}} -> (tensor<8xf32>, !rt.token)
// CHECK-NEXT:    rt.launch @k(%[[X]])
// CHECK-NEXT:    %[[HERE:.+]] = rt.wait %[[GO]]#1 values(%[[GO]]#0) sources(%[[X]])
// CHECK-NEXT:    rt.launch @k(%[[HERE]])
func.func @ahead(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %0 = rt.collective permute(%x) group = [0, 1, 2] layout = [1, 8, 1, 8] purpose = "activation" {sources = array<i64: 1, 0>}
    : (tensor<8xf32>) -> tensor<8xf32>
  %1 = rt.launch @k(%x) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
  %2 = rt.launch @k(%0) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
  return %1, %2 : tensor<8xf32>, tensor<8xf32>
}

// Read at once: nothing to do meanwhile.
// CHECK-LABEL: func @at_once(
// CHECK-NOT:     rt.wait
// CHECK:         return
func.func @at_once(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = rt.collective permute(%x) group = [0, 1, 2] layout = [1, 8, 1, 8] purpose = "activation" {sources = array<i64: 1, 0>}
    : (tensor<8xf32>) -> tensor<8xf32>
  %1 = rt.launch @k(%0) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
  return %1 : tensor<8xf32>
}

// Other collectives end where they begin.
// CHECK-LABEL: func @sum(
// CHECK-NOT:     rt.wait
// CHECK:         return
func.func @sum(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %0 = rt.collective all_reduce(%x) group = [0, 1, 2] layout = [1, 8, 1, 8] purpose = "activation"
    : (tensor<8xf32>) -> tensor<8xf32>
  %1 = rt.launch @k(%x) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
  return %0, %1 : tensor<8xf32>, tensor<8xf32>
}
