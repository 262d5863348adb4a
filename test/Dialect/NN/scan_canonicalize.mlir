// RUN: cleave-opt %s --canonicalize | FileCheck %s

// A slice, a capture and a stacked result that nothing reads are dropped; carried values stay.
// CHECK-LABEL: func.func @unread
// CHECK:         %[[Y:.+]]:2 = nn.scan trips = 5 carries(%[[H:.+]] = %arg0 : tensor<3xf32>) slices(%[[X:.+]] = %arg1 : tensor<5x3xf32>) -> tensor<3xf32>, tensor<5x3xf32>
// CHECK:           %[[SUM:.+]] = arith.addf %[[H]], %[[X]]
// CHECK:           nn.yield %[[SUM]], %[[SUM]] :
// CHECK:         return %[[Y]]#1
func.func @unread(%h0: tensor<3xf32>, %xs: tensor<5x3xf32>, %w: tensor<7xf32>) -> tensor<5x3xf32> {
  %last, %a, %b = nn.scan trips = 5 carries(%h = %h0 : tensor<3xf32>) slices(%x = %xs : tensor<5x3xf32>, %unread = %xs : tensor<5x3xf32>)
      captures(%c = %w : tensor<7xf32>) -> tensor<3xf32>, tensor<5x3xf32>, tensor<5x3xf32> {
    %0 = arith.addf %h, %x : tensor<3xf32>
    %1 = arith.mulf %x, %x : tensor<3xf32>
    nn.yield %0, %1, %0 : tensor<3xf32>, tensor<3xf32>, tensor<3xf32>
  }
  return %b : tensor<5x3xf32>
}

// An operand that is passed twice is read by one argument.
// CHECK-LABEL: func.func @twice
// CHECK:         nn.scan trips = 5 carries(%{{.+}} = %arg0 : tensor<3xf32>) slices(%[[X:.+]] = %arg1 : tensor<5x3xf32>) captures(%[[W:.+]] = %arg2 : tensor<3xf32>) -> tensor<3xf32>
// CHECK:           arith.mulf %[[X]], %[[X]]
// CHECK:           arith.mulf %{{.+}}, %[[W]]
func.func @twice(%h0: tensor<3xf32>, %xs: tensor<5x3xf32>, %w: tensor<3xf32>) -> tensor<3xf32> {
  %last = nn.scan trips = 5 carries(%h = %h0 : tensor<3xf32>) slices(%x = %xs : tensor<5x3xf32>, %y = %xs : tensor<5x3xf32>)
      captures(%c = %w : tensor<3xf32>, %d = %w : tensor<3xf32>) -> tensor<3xf32> {
    %0 = arith.mulf %x, %y : tensor<3xf32>
    %1 = arith.mulf %h, %d : tensor<3xf32>
    %2 = arith.addf %0, %1 : tensor<3xf32>
    %3 = arith.addf %2, %c : tensor<3xf32>
    nn.yield %3 : tensor<3xf32>
  }
  return %last : tensor<3xf32>
}

// A carried value that no iteration changes is captured.
// CHECK-LABEL: func.func @unchanged
// CHECK:         %[[Y:.+]] = nn.scan trips = 5 carries(%[[H:.+]] = %arg0 : tensor<3xf32>) slices(%{{.+}} = %arg1 : tensor<5x3xf32>) captures(%[[C:.+]] = %arg2 : tensor<3xf32>) -> tensor<3xf32>
// CHECK:           arith.mulf %[[H]], %[[C]]
// CHECK:         return %[[Y]], %arg2
func.func @unchanged(%h0: tensor<3xf32>, %xs: tensor<5x3xf32>, %w: tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>) {
  %last, %same = nn.scan trips = 5 carries(%h = %h0 : tensor<3xf32>, %c = %w : tensor<3xf32>) slices(%x = %xs : tensor<5x3xf32>) -> tensor<3xf32>, tensor<3xf32> {
    %0 = arith.mulf %h, %c : tensor<3xf32>
    %1 = arith.addf %0, %x : tensor<3xf32>
    nn.yield %1, %c : tensor<3xf32>, tensor<3xf32>
  }
  return %last, %same : tensor<3xf32>, tensor<3xf32>
}

// What reads only captures and constants is computed before the loop; a broadcast would only take memory there.
// CHECK-LABEL: func.func @invariant
// CHECK:         %[[HALF:.+]] = arith.constant
// CHECK:         %[[EXP:.+]] = math.exp %arg2
// CHECK:         %[[W:.+]] = arith.mulf %[[EXP]], %[[HALF]]
// CHECK:         nn.scan trips = 5 carries(%{{.+}} = %arg0 : tensor<2x3xf32>) slices(%{{.+}} = %arg1 : tensor<5x2x3xf32>) captures(%[[C:.+]] = %[[W]] : tensor<3xf32>) -> tensor<2x3xf32> {
// CHECK-NEXT:      nn.broadcast %[[C]]
// CHECK-NEXT:      arith.mulf
// CHECK-NEXT:      arith.addf
// CHECK-NEXT:      nn.yield
func.func @invariant(%h0: tensor<2x3xf32>, %xs: tensor<5x2x3xf32>, %w: tensor<3xf32>) -> tensor<2x3xf32> {
  %last = nn.scan trips = 5 carries(%h = %h0 : tensor<2x3xf32>) slices(%x = %xs : tensor<5x2x3xf32>) captures(%c = %w : tensor<3xf32>) -> tensor<2x3xf32> {
    %half = arith.constant dense<0.5> : tensor<3xf32>
    %0 = math.exp %c : tensor<3xf32>
    %1 = arith.mulf %0, %half : tensor<3xf32>
    %2 = nn.broadcast %1 dims = [1] : tensor<3xf32> -> tensor<2x3xf32>
    %3 = arith.mulf %h, %2 : tensor<2x3xf32>
    %4 = arith.addf %3, %x : tensor<2x3xf32>
    nn.yield %4 : tensor<2x3xf32>
  }
  return %last : tensor<2x3xf32>
}
