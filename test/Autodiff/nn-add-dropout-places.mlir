// RUN: cleave-opt %s "--nn-add-dropout=p=0.1" -split-input-file -verify-diagnostics | FileCheck %s

// Branches are known behind what moves, scales or normalizes them; an embedding that has no positions
// is the stream itself; two scaled products are a rotation.
// CHECK-LABEL: func @loss_train(
// CHECK:         %[[E:.+]] = nn.gather
// CHECK:         %[[DE:.+]] = nn.dropout %[[E]]
// CHECK:         %[[A:.+]] = nn.einsum "bsd,de->sbe"
// CHECK:         %[[T:.+]] = nn.transpose %[[A]] [1, 0, 2]
// CHECK:         %[[DT:.+]] = nn.dropout %[[T]]
// CHECK:         %[[X1:.+]] = arith.addf %[[DE]], %[[DT]]
// CHECK:         %[[S:.+]] = arith.mulf
// CHECK:         %[[DS:.+]] = nn.dropout %[[S]]
// CHECK:         %[[X2:.+]] = arith.addf %[[X1]], %[[DS]]
// CHECK:         %[[N:[a-z0-9_]+]], %{{.+}} = nn.rms_norm
// CHECK:         %[[DN:.+]] = nn.dropout %[[N]]
// CHECK:         %[[X3:.+]] = arith.addf %[[X2]], %[[DN]]
// CHECK:         nn.einsum
// CHECK-NOT:     nn.dropout
// CHECK:         return
// expected-remark @below {{dropout at 4 places (embeddings, and what joins residual sums) and on the weights of 0 attentions}}
func.func @loss(%table: tensor<9x4xf32> {nn.name = "t", nn.role = "parameter"},
                %w: tensor<4x4xf32> {nn.name = "w", nn.role = "parameter"},
                %g: tensor<4xf32> {nn.name = "g", nn.role = "parameter"},
                %ids: tensor<2x3xi64> {nn.batch_dim = 0 : i64, nn.name = "ids", nn.role = "input"},
                %cos: tensor<2x3x4xf32> {nn.batch_dim = 0 : i64, nn.name = "cos", nn.role = "input"},
                %sin: tensor<2x3x4xf32> {nn.batch_dim = 0 : i64, nn.name = "sin", nn.role = "input"})
    -> (tensor<f32> {nn.name = "loss", nn.role = "loss"}, tensor<f32> {nn.name = "weight", nn.role = "weight"}) {
  %e = nn.gather %table, %ids dim = 0 : tensor<9x4xf32>, tensor<2x3xi64> -> tensor<2x3x4xf32>
  %a = nn.einsum "bsd,de->sbe" %e, %w : tensor<2x3x4xf32>, tensor<4x4xf32> -> tensor<3x2x4xf32>
  %t = nn.transpose %a [1, 0, 2] : tensor<3x2x4xf32> -> tensor<2x3x4xf32>
  %x1 = arith.addf %e, %t : tensor<2x3x4xf32>
  %b = nn.einsum "bsd,de->bse" %x1, %w : tensor<2x3x4xf32>, tensor<4x4xf32> -> tensor<2x3x4xf32>
  %gs = nn.broadcast %g dims = [2] : tensor<4xf32> -> tensor<2x3x4xf32>
  %s = arith.mulf %gs, %b : tensor<2x3x4xf32>
  %x2 = arith.addf %x1, %s : tensor<2x3x4xf32>
  %c = nn.einsum "bsd,de->bse" %x2, %w : tensor<2x3x4xf32>, tensor<4x4xf32> -> tensor<2x3x4xf32>
  %n, %rstd = nn.rms_norm %c, %g epsilon = 1.0e-5 : (tensor<2x3x4xf32>, tensor<4xf32>) -> (tensor<2x3x4xf32>, tensor<2x3xf32>)
  %x3 = arith.addf %x2, %n : tensor<2x3x4xf32>
  %q = nn.einsum "bsd,de->bse" %x3, %w : tensor<2x3x4xf32>, tensor<4x4xf32> -> tensor<2x3x4xf32>
  %qc = arith.mulf %q, %cos : tensor<2x3x4xf32>
  %qs = arith.mulf %q, %sin : tensor<2x3x4xf32>
  %r = arith.addf %qc, %qs : tensor<2x3x4xf32>
  %l = nn.reduce sum %r dims = [0, 1, 2] : tensor<2x3x4xf32> -> tensor<f32>
  %one = arith.constant dense<1.0> : tensor<f32>
  return %l, %one : tensor<f32>, tensor<f32>
}

// -----

// Of several embeddings the whole sum.
// CHECK-LABEL: func @loss_train(
// CHECK:         %[[SOME:.+]] = arith.addf
// CHECK-NOT:     nn.dropout
// CHECK:         %[[ALL:.+]] = arith.addf %[[SOME]]
// CHECK-NEXT:    nn.dropout %[[ALL]]
// CHECK-NOT:     nn.dropout
// CHECK:         return
// expected-remark @below {{dropout at 1 place (embeddings}}
func.func @loss(%table: tensor<9x4xf32> {nn.name = "t", nn.role = "parameter"},
                %p: tensor<4xf32> {nn.name = "p", nn.role = "parameter"},
                %kinds: tensor<2x4xf32> {nn.name = "k", nn.role = "parameter"},
                %ids: tensor<2x3xi64> {nn.batch_dim = 0 : i64, nn.name = "ids", nn.role = "input"})
    -> (tensor<f32> {nn.name = "loss", nn.role = "loss"}, tensor<f32> {nn.name = "weight", nn.role = "weight"}) {
  %e = nn.gather %table, %ids dim = 0 : tensor<9x4xf32>, tensor<2x3xi64> -> tensor<2x3x4xf32>
  %f = nn.gather %kinds, %ids dim = 0 : tensor<2x4xf32>, tensor<2x3xi64> -> tensor<2x3x4xf32>
  %s = arith.addf %e, %f : tensor<2x3x4xf32>
  %g = nn.gather %table, %ids dim = 0 : tensor<9x4xf32>, tensor<2x3xi64> -> tensor<2x3x4xf32>
  %a = arith.addf %s, %g : tensor<2x3x4xf32>
  %l = nn.reduce sum %a dims = [0, 1, 2] : tensor<2x3x4xf32> -> tensor<f32>
  %one = arith.constant dense<1.0> : tensor<f32>
  return %l, %one : tensor<f32>, tensor<f32>
}
