// RUN: cleave-opt %s --nn-outline-scans | FileCheck %s

// A carried value becomes a pair of buffers, whose second one holds the initial value. After an even number of trips the
// final value is in the second one, too.
// CHECK-LABEL: func.func @f(
// CHECK-SAME:    %[[H0:.*]]: tensor<3xf32>, %[[XS:.*]]: tensor<4x3xf32>, %[[W:.*]]: tensor<3xf32>)
// CHECK-NEXT:  %[[PAIR:.*]] = rt.copy %[[H0]] [0, 1] to [3, 1] shape = [3] : (tensor<3xf32>) -> tensor<2x3xf32>
// CHECK-NEXT:  %[[LOOP:.*]]:2 = rt.repeat @f.trip trips = 4 reverse pairs(%[[PAIR]]) slices(%[[XS]]) captures(%[[W]])
// CHECK-SAME:    : (tensor<2x3xf32>, tensor<4x3xf32>, tensor<3xf32>) -> (tensor<2x3xf32>, tensor<4x3xf32>)
// CHECK-NEXT:  %[[LAST:.*]] = rt.alias %[[LOOP]]#0 offset = 3 : (tensor<2x3xf32>) -> tensor<3xf32>
// CHECK-NEXT:  return %[[LAST]], %[[LOOP]]#1
func.func @f(%h0: tensor<3xf32>, %xs: tensor<4x3xf32>, %w: tensor<3xf32>) -> (tensor<3xf32>, tensor<4x3xf32>) {
  %last, %ys = nn.scan trips = 4 reverse carries(%h = %h0 : tensor<3xf32>) slices(%x = %xs : tensor<4x3xf32>)
      captures(%v = %w : tensor<3xf32>) -> tensor<3xf32>, tensor<4x3xf32> {
    %0 = arith.mulf %x, %v : tensor<3xf32>
    %1 = arith.addf %h, %0 : tensor<3xf32>
    nn.yield %1, %0 : tensor<3xf32>, tensor<3xf32>
  }
  return %last, %ys : tensor<3xf32>, tensor<4x3xf32>
}

// A loop in a loop: the inner body is a function of its own.
// CHECK-LABEL: func.func @nested(
// CHECK:       rt.repeat @nested.trip trips = 2 captures
func.func @nested(%a: tensor<3xf32>) -> tensor<2x3x3xf32> {
  %0 = nn.scan trips = 2 captures(%b = %a : tensor<3xf32>) -> tensor<2x3x3xf32> {
    %1 = nn.scan trips = 3 captures(%c = %b : tensor<3xf32>) -> tensor<3x3xf32> {
      %2 = arith.negf %c : tensor<3xf32>
      nn.yield %2 : tensor<3xf32>
    }
    nn.yield %1 : tensor<3x3xf32>
  }
  return %0 : tensor<2x3x3xf32>
}

// CHECK-LABEL: func.func private @f.trip(
// CHECK-SAME:    %[[H:.*]]: tensor<3xf32> {nn.name = "0", nn.role = #nn.role<input>}
// CHECK-SAME:    -> (tensor<3xf32> {nn.name = "0", nn.role = #nn.role<output>}
// CHECK-SAME:    attributes {rt.body}
// CHECK:         return

// CHECK-LABEL: func.func private @nested.trip(
// CHECK:         %[[INNER:.*]] = rt.repeat @nested.trip_0 trips = 3 captures
// CHECK-NEXT:    return %[[INNER]]

// CHECK-LABEL: func.func private @nested.trip_0(
// CHECK:         arith.negf
