// RUN: cleave-opt %s "--nn-add-dropout=p=0.1" | FileCheck %s
// RUN: cleave-opt %s "--nn-add-dropout=p=0.1" --nn-differentiate | FileCheck %s --check-prefix=GRAD
// RUN: cleave-opt %s "--nn-add-dropout=p=0" | FileCheck %s --check-prefix=NONE

// The residual branch gets dropout, its bias and its inner contraction do not; @loss stays as it was.
// CHECK-LABEL: func @loss(
// CHECK-NOT:     nn.dropout
// CHECK-LABEL: func @loss_train(
// CHECK-SAME:    %[[IDS:[a-z0-9]+]]: tensor<2xi64> {nn.name = "sample_ids", nn.role = #nn.role<sample_ids>}
// CHECK:         nn.einsum "bh,hk->bk"
// CHECK-NEXT:    math.tanh
// CHECK-NEXT:    nn.einsum "bk,kh->bh"
// CHECK:         %[[B:.+]] = arith.addf
// CHECK-NEXT:    %[[D:.+]] = nn.dropout %[[B]], %{{.+}}, %{{.+}}, %[[IDS]] p = 1.000000e-01 op_id = 0 global_shape = [2, 3]
// CHECK-NEXT:    arith.addf %{{.+}}, %[[D]]

// GRAD-NOT:    func @loss_train
// GRAD-LABEL:  func @loss_grad
// GRAD-COUNT-2:  nn.dropout

// NONE-NOT:    nn.dropout
func.func @loss(%w: tensor<3x4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                %v: tensor<4x3xf32> {nn.name = "v", nn.role = #nn.role<parameter>},
                %b: tensor<3xf32> {nn.name = "b", nn.role = #nn.role<parameter>},
                %x: tensor<2x3xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
  %0 = nn.einsum "bh,hk->bk" %x, %w : tensor<2x3xf32>, tensor<3x4xf32> -> tensor<2x4xf32>
  %1 = math.tanh %0 : tensor<2x4xf32>
  %2 = nn.einsum "bk,kh->bh" %1, %v : tensor<2x4xf32>, tensor<4x3xf32> -> tensor<2x3xf32>
  %3 = nn.broadcast %b dims = [1] : tensor<3xf32> -> tensor<2x3xf32>
  %4 = arith.addf %2, %3 : tensor<2x3xf32>
  %5 = arith.addf %x, %4 : tensor<2x3xf32>
  %y = nn.einsum "bh,hk->bk" %5, %w : tensor<2x3xf32>, tensor<3x4xf32> -> tensor<2x4xf32>
  %6 = nn.reduce sum %y dims = [0, 1] : tensor<2x4xf32> -> tensor<f32>
  %one = arith.constant dense<1.0> : tensor<f32>
  return %6, %one : tensor<f32>, tensor<f32>
}
