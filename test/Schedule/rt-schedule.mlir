// RUN: cleave-opt %s --rt-schedule | FileCheck %s

func.func private @k(tensor<8xf32>) -> tensor<8xf32>

// CHECK-LABEL: func @late
// CHECK-NEXT:    rt.launch @k(%arg0)
// CHECK-NEXT:    %[[F:.+]] = rt.fill
// CHECK-NEXT:    rt.launch @k(%[[F]])
func.func @late(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %0 = rt.fill 0.0 : f32 : tensor<8xf32>
  %1 = rt.launch @k(%x) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
  %2 = rt.launch @k(%0) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
  return %1, %2 : tensor<8xf32>, tensor<8xf32>
}

// Delaying a copy of a value would keep the value alive longer.
// CHECK-LABEL: func @negative_copy_of_a_value
// CHECK-NEXT:    rt.launch
// CHECK-NEXT:    rt.copy
// CHECK-NEXT:    rt.launch
func.func @negative_copy_of_a_value(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %0 = rt.launch @k(%x) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
  %1 = rt.copy %0 [0, 1] to [0, 1] shape = [8] : (tensor<8xf32>) -> tensor<8xf32>
  %2 = rt.launch @k(%x) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
  return %1, %2 : tensor<8xf32>, tensor<8xf32>
}
