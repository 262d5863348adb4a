// RUN: cleave-opt %s -split-input-file --nn-differentiate | FileCheck %s

// The cotangents of sliced weights are one product after the backward loop, for all iterations; the loop only carries the
// cotangent of the hidden state.
// CHECK-LABEL: func.func @loss_grad
// CHECK:         %[[FORWARD:.+]]:2 = nn.scan trips = 3 carries(%[[H:.+]] = %{{.+}} : tensor<4x2xf32>)
// CHECK:           nn.yield %{{.+}}, %[[H]]
// CHECK:         %[[BACKWARD:.+]]:2 = nn.scan trips = 3 reverse
// CHECK-COUNT-1:   nn.einsum
// CHECK:           nn.yield
// CHECK:         nn.einsum "tbi,tbk->tik" %{{.+}}, %{{.+}} : tensor<3x4x2xf32>, tensor<3x4x2xf32> -> tensor<3x2x2xf32>
func.func @loss(%w: tensor<3x2x2xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                  %x: tensor<4x2xf32> {nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
  %y = nn.scan trips = 3 carries(%h = %x : tensor<4x2xf32>) slices(%each = %w : tensor<3x2x2xf32>) -> tensor<4x2xf32> {
    %0 = nn.einsum "bi,ik->bk" %h, %each : tensor<4x2xf32>, tensor<2x2xf32> -> tensor<4x2xf32>
    nn.yield %0 : tensor<4x2xf32>
  }
  %1 = nn.reduce sum %y dims = [0, 1] : tensor<4x2xf32> -> tensor<f32>
  return %1, %1 : tensor<f32>, tensor<f32>
}

// -----

// A loop inside of a loop runs once in the forward pass, also if an operation after it reads its result.
// CHECK-LABEL: func.func @loss_grad
// CHECK:         nn.scan trips = 2
// CHECK:           nn.scan trips = 3
// CHECK-NOT:       nn.scan
// CHECK:         nn.scan trips = 2 reverse
// CHECK:           nn.scan trips = 3 reverse
// CHECK-NOT:       nn.scan
// CHECK:         return
func.func @loss(%w: tensor<2xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                  %x: tensor<2x3x2xf32> {nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
  %y = nn.scan trips = 2 carries(%h = %w : tensor<2xf32>) slices(%rows = %x : tensor<2x3x2xf32>) captures(%u = %w : tensor<2xf32>) -> tensor<2xf32> {
    %0 = nn.scan trips = 3 carries(%g = %h : tensor<2xf32>) slices(%row = %rows : tensor<3x2xf32>) captures(%v = %u : tensor<2xf32>) -> tensor<2xf32> {
      %1 = arith.mulf %g, %v : tensor<2xf32>
      %2 = arith.addf %1, %row : tensor<2xf32>
      %3 = math.tanh %2 : tensor<2xf32>
      nn.yield %3 : tensor<2xf32>
    }
    %4 = math.sin %0 : tensor<2xf32>
    nn.yield %4 : tensor<2xf32>
  }
  %5 = nn.reduce sum %y dims = [0] : tensor<2xf32> -> tensor<f32>
  return %5, %5 : tensor<f32>, tensor<f32>
}
