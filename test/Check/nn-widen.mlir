// RUN: cleave-opt %s --nn-widen | FileCheck %s

// CHECK-LABEL: func @arguments_values_constants
// CHECK-SAME:    (%[[X:.+]]: tensor<2x3xf64> {nn.data = #nn.data<file = "w", offset = 0, length = 24, dtype = "f32">, nn.name = "x"},
// CHECK-SAME:     %[[I:.+]]: tensor<3xi64>)
// CHECK-SAME:    -> (tensor<2x3xf64> {nn.name = "y"})
// The constant keeps its f32 value.
// CHECK-DAG:     %[[TENTH:.+]] = arith.constant dense<0.10000000149011612> : tensor<2x3xf64>
// CHECK-DAG:     %[[TWO:.+]] = arith.constant dense<{{\[\[}}1.{{0+}}e+00, 2.{{0+}}e+00, 3.{{0+}}e+00], [4.{{0+}}e+00, 5.{{0+}}e+00, 0xFFF0000000000000]]> : tensor<2x3xf64>
// CHECK:         %[[A:.+]] = arith.mulf %[[X]], %[[TENTH]] : tensor<2x3xf64>
// CHECK:         %[[B:.+]] = arith.addf %[[A]], %[[TWO]] : tensor<2x3xf64>
// CHECK:         %[[C:.+]] = math.exp %[[B]] : tensor<2x3xf64>
// CHECK:         %[[F:.+]] = arith.sitofp %[[I]] : tensor<3xi64> to tensor<3xf64>
// CHECK:         return %[[C]]
func.func @arguments_values_constants(%x: tensor<2x3xf32> {nn.name = "x", nn.data = #nn.data<file = "w", offset = 0, length = 24, dtype = "f32">},
                                      %i: tensor<3xi64>)
    -> (tensor<2x3xf32> {nn.name = "y"}) {
  %tenth = arith.constant dense<0.1> : tensor<2x3xf32>
  %numbers = arith.constant dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 0xFF800000]]> : tensor<2x3xf32>
  %0 = arith.mulf %x, %tenth : tensor<2x3xf32>
  %1 = arith.addf %0, %numbers : tensor<2x3xf32>
  %2 = math.exp %1 : tensor<2x3xf32>
  %3 = arith.sitofp %i : tensor<3xi64> to tensor<3xf32>
  return %2 : tensor<2x3xf32>
}

// CHECK-LABEL: func @casts_vanish
// CHECK-SAME:    (%[[X:.+]]: tensor<3xf64>) -> tensor<3xf64>
// CHECK-NEXT:    return %[[X]]
func.func @casts_vanish(%x: tensor<3xf32>) -> tensor<3xf32> {
  %0 = arith.extf %x : tensor<3xf32> to tensor<3xf64>
  %1 = arith.truncf %0 : tensor<3xf64> to tensor<3xbf16>
  %2 = arith.extf %1 : tensor<3xbf16> to tensor<3xf32>
  return %2 : tensor<3xf32>
}

// In calls and per-rank programs, the type of the whole tensor is widened too.
// CHECK-LABEL: func @local
// CHECK-SAME:    tensor<2x3xf64> {dist.global_type = tensor<4x3xf64>}
// CHECK:         call @casts_vanish(%{{.+}}) : (tensor<3xf64>) -> tensor<3xf64>
func.func @local(%x: tensor<2x3xf32> {dist.global_type = tensor<4x3xf32>}) -> tensor<3xf32> {
  %0 = nn.reduce sum %x dims = [0] : tensor<2x3xf32> -> tensor<3xf32>
  %1 = call @casts_vanish(%0) : (tensor<3xf32>) -> tensor<3xf32>
  return %1 : tensor<3xf32>
}
