// RUN: cleave-opt %s -rt-split-async -rt-verify-order | FileCheck %s

func.func private @k(tensor<8xf32>) -> tensor<8xf32>

// The transfer overlaps @k.
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

// The result is read immediately: there is nothing to overlap.
// CHECK-LABEL: func @at_once(
// CHECK-NOT:     rt.wait
// CHECK:         return
func.func @at_once(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = rt.collective permute(%x) group = [0, 1, 2] layout = [1, 8, 1, 8] purpose = "activation" {sources = array<i64: 1, 0>}
    : (tensor<8xf32>) -> tensor<8xf32>
  %1 = rt.launch @k(%0) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
  return %1 : tensor<8xf32>
}

// An all-to-all of rows with their counts is also asynchronous.
// CHECK-LABEL: func @rows(
// CHECK-SAME:    %[[X:.+]]: tensor<2x4xf32>, %[[N:.+]]: tensor<2xi64>, %[[K:.+]]: tensor<8xf32>
// CHECK:         %[[GO:.+]]:2 = rt.collective all_to_all_v(%[[X]]) counts(%[[N]], %[[N]]{{.*}} -> (tensor<2x4xf32>, !rt.token)
// CHECK-NEXT:    rt.launch @k(%[[K]])
// CHECK-NEXT:    rt.wait %[[GO]]#1 values(%[[GO]]#0) sources(%[[X]], %[[N]], %[[N]])
func.func @rows(%x: tensor<2x4xf32>, %n: tensor<2xi64>, %k: tensor<8xf32>) -> (tensor<2x4xf32>, tensor<8xf32>) {
  %0 = rt.collective all_to_all_v(%x) counts(%n, %n : tensor<2xi64>, tensor<2xi64>) group = [0, 1, 2] layout = [4, 1, 4, 1] purpose = "expert"
    : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %1 = rt.launch @k(%k) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
  return %0, %1 : tensor<2x4xf32>, tensor<8xf32>
}

// A collective under a condition is not split, because its wait might not be executed.
// CHECK-LABEL: func @condition(
// CHECK-NOT:     rt.wait
// CHECK:         return
func.func @condition(%x: tensor<2x4xf32>, %n: tensor<2xi64>, %k: tensor<8xf32>, %c: tensor<1xi1>) -> (tensor<2x4xf32>, tensor<8xf32>) {
  rt.condition %c number = 1 : tensor<1xi1>
  %0 = rt.collective all_to_all_v(%x) counts(%n, %n : tensor<2xi64>, tensor<2xi64>) group = [0, 1, 2] layout = [4, 1, 4, 1] purpose = "expert" {nn.when = 1 : i64}
    : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %1 = rt.launch @k(%k) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
  return %0, %1 : tensor<2x4xf32>, tensor<8xf32>
}

// Other collectives stay synchronous.
// CHECK-LABEL: func @sum(
// CHECK-NOT:     rt.wait
// CHECK:         return
func.func @sum(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %0 = rt.collective all_reduce(%x) group = [0, 1, 2] layout = [1, 8, 1, 8] purpose = "activation"
    : (tensor<8xf32>) -> tensor<8xf32>
  %1 = rt.launch @k(%x) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
  return %0, %1 : tensor<8xf32>, tensor<8xf32>
}
