// RUN: cleave-opt %s "--nn-add-dropout=p=0.1" -split-input-file -verify-diagnostics | FileCheck %s

// A branch is recognized by the residual stream that it is computed from, however it is moved, scaled
// or normalized; an embedding is itself the stream. The two terms of a rotary embedding are computed
// from one value, neither from the other, so their sum is not a residual sum.
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
// expected-remark @below {{dropout at 1 embedding, 3 branches that join residual sums and on the weights of 0 attentions}}
func.func @loss(%table: tensor<9x4xf32> {nn.name = "t", nn.role = #nn.role<parameter>},
                %w: tensor<4x4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                %g: tensor<4xf32> {nn.name = "g", nn.role = #nn.role<parameter>},
                %ids: tensor<2x3xi64> {nn.batch_dim = 0 : i64, nn.name = "ids", nn.role = #nn.role<input>},
                %cos: tensor<2x3x4xf32> {nn.batch_dim = 0 : i64, nn.name = "cos", nn.role = #nn.role<input>},
                %sin: tensor<2x3x4xf32> {nn.batch_dim = 0 : i64, nn.name = "sin", nn.role = #nn.role<input>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
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

// With several embeddings, dropout applies to their scaled and normalized sum. A frozen weight, or a
// product of two weights, counts as a weight. An added bias or scale is not a branch.
// CHECK-LABEL: func @loss_train(
// CHECK:         nn.einsum "rd,re->de"
// CHECK:         %[[E:.+]] = nn.gather
// CHECK-NOT:     nn.dropout
// CHECK:         %[[ALL:.+]] = arith.mulf
// CHECK-NEXT:    %[[D:.+]] = nn.dropout %[[ALL]], {{.*}} op_id = 0
// CHECK:         nn.layer_norm %[[D]]
// CHECK-NOT:     nn.dropout
// CHECK:         %[[B:.+]] = nn.einsum "bsd,de->bse"
// CHECK-NEXT:    %[[DB:.+]] = nn.dropout %[[B]], {{.*}} op_id = 1
// CHECK-NOT:     nn.dropout
// CHECK:         return
// expected-remark @below {{dropout at 1 embedding, 1 branch that joins a residual sum and}}
func.func @loss(%table: tensor<9x4xf32> {nn.name = "t", nn.role = #nn.role<constant>},
                %g: tensor<4xf32> {nn.name = "g", nn.role = #nn.role<parameter>},
                %l: tensor<2x4xf32> {nn.name = "l", nn.role = #nn.role<parameter>},
                %kinds: tensor<2x4xf32> {nn.name = "k", nn.role = #nn.role<parameter>},
                %ids: tensor<2x3xi64> {nn.batch_dim = 0 : i64, nn.name = "ids", nn.role = #nn.role<input>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
  %w = nn.einsum "rd,re->de" %l, %kinds : tensor<2x4xf32>, tensor<2x4xf32> -> tensor<4x4xf32>
  %e = nn.gather %table, %ids dim = 0 : tensor<9x4xf32>, tensor<2x3xi64> -> tensor<2x3x4xf32>
  %f = nn.gather %kinds, %ids dim = 0 : tensor<2x4xf32>, tensor<2x3xi64> -> tensor<2x3x4xf32>
  %s = arith.addf %e, %f : tensor<2x3x4xf32>
  %p = nn.broadcast %g dims = [2] : tensor<4xf32> -> tensor<2x3x4xf32>
  %a = arith.addf %s, %p : tensor<2x3x4xf32>
  %two = arith.constant dense<2.0> : tensor<2x3x4xf32>
  %m = arith.mulf %a, %two : tensor<2x3x4xf32>
  %x, %mean, %rstd = nn.layer_norm %m, %g, %g epsilon = 1.0e-5 : (tensor<2x3x4xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<2x3x4xf32>, tensor<2x3xf32>, tensor<2x3xf32>)
  %b = nn.einsum "bsd,de->bse" %x, %w : tensor<2x3x4xf32>, tensor<4x4xf32> -> tensor<2x3x4xf32>
  %x1 = arith.addf %x, %b : tensor<2x3x4xf32>
  %c = nn.einsum "bsd,de->bse" %x1, %w : tensor<2x3x4xf32>, tensor<4x4xf32> -> tensor<2x3x4xf32>
  %biased = arith.addf %c, %p : tensor<2x3x4xf32>
  %one = arith.constant dense<1.0> : tensor<2x3x4xf32>
  %more = arith.addf %one, %biased : tensor<2x3x4xf32>
  %film = arith.mulf %x1, %more : tensor<2x3x4xf32>
  %sum = nn.reduce sum %film dims = [0, 1, 2] : tensor<2x3x4xf32> -> tensor<f32>
  %n = arith.constant dense<1.0> : tensor<f32>
  return %sum, %n : tensor<f32>, tensor<f32>
}

// -----

// Both terms of a rotary embedding are computed from %q, even if further changed. A looked-up row that is added to
// an existing stream is not its embedding. A value added to two sums in two forms gets dropout once in each.
// CHECK-LABEL: func @loss_train(
// CHECK:         %[[Q:.+]] = nn.einsum "bsd,de->bse"
// CHECK:         math.sin
// CHECK-NOT:     nn.dropout
// CHECK:         %[[ROT:.+]] = arith.addf
// CHECK-NEXT:    %[[B:.+]] = nn.einsum "bsd,de->bse" %[[ROT]]
// CHECK-NEXT:    %[[D0:.+]] = nn.dropout %[[B]], {{.*}} op_id = 0
// CHECK-NEXT:    %[[X1:.+]] = arith.addf %{{.+}}, %[[D0]]
// CHECK-NEXT:    %[[G:.+]] = arith.mulf %[[B]], %
// CHECK-NEXT:    %[[D1:.+]] = nn.dropout %[[G]], {{.*}} op_id = 1
// CHECK-NEXT:    %[[X2:.+]] = arith.addf %[[X1]], %[[D1]]
// CHECK-NOT:     nn.dropout
// CHECK:         return
// expected-remark @below {{dropout at 0 embeddings, 2 branches that join residual sums}}
func.func @loss(%w: tensor<4x4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                %users: tensor<9x4xf32> {nn.name = "u", nn.role = #nn.role<parameter>},
                %cos: tensor<2x3x4xf32> {nn.name = "cos", nn.role = #nn.role<constant>},
                %user: tensor<2x3xi64> {nn.batch_dim = 0 : i64, nn.name = "user", nn.role = #nn.role<input>},
                %x: tensor<2x3x4xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
  %e = nn.gather %users, %user dim = 0 : tensor<9x4xf32>, tensor<2x3xi64> -> tensor<2x3x4xf32>
  %t = math.tanh %x : tensor<2x3x4xf32>
  %x0 = arith.addf %t, %e : tensor<2x3x4xf32>
  %q = nn.einsum "bsd,de->bse" %x0, %w : tensor<2x3x4xf32>, tensor<4x4xf32> -> tensor<2x3x4xf32>
  %r = math.sin %q : tensor<2x3x4xf32>
  %qc = arith.mulf %q, %cos : tensor<2x3x4xf32>
  %rc = arith.mulf %r, %cos : tensor<2x3x4xf32>
  %rot = arith.addf %qc, %rc : tensor<2x3x4xf32>
  %b = nn.einsum "bsd,de->bse" %rot, %w : tensor<2x3x4xf32>, tensor<4x4xf32> -> tensor<2x3x4xf32>
  %x1 = arith.addf %x0, %b : tensor<2x3x4xf32>
  %g = arith.mulf %b, %cos : tensor<2x3x4xf32>
  %x2 = arith.addf %x1, %g : tensor<2x3x4xf32>
  %y = nn.einsum "bsd,de->bse" %x2, %w : tensor<2x3x4xf32>, tensor<4x4xf32> -> tensor<2x3x4xf32>
  %sum = nn.reduce sum %y dims = [0, 1, 2] : tensor<2x3x4xf32> -> tensor<f32>
  %n = arith.constant dense<1.0> : tensor<f32>
  return %sum, %n : tensor<f32>, tensor<f32>
}

// -----

// Samples in dimension 1, and samples merged with positions: a sample gets the same mask in every layout.
// CHECK-LABEL: func @loss_train(
// CHECK:         %[[B:.+]] = nn.einsum "sbd,de->sbe"
// CHECK:         %[[T:.+]] = nn.transpose %[[B]] [1, 0, 2] : tensor<3x2x4xf32> -> tensor<2x3x4xf32>
// CHECK:         %[[D:.+]] = nn.dropout %[[T]], {{.*}} op_id = 0 global_shape = [2, 3, 4]
// CHECK:         nn.transpose %[[D]] [1, 0, 2] : tensor<2x3x4xf32> -> tensor<3x2x4xf32>
// CHECK:         %[[ROWS:.+]] = nn.einsum "rd,de->re"
// CHECK:         %[[S:.+]] = nn.reshape %[[ROWS]] : tensor<6x4xf32> -> tensor<2x3x4xf32>
// CHECK:         %[[D1:.+]] = nn.dropout %[[S]], {{.*}} op_id = 1 global_shape = [2, 3, 4]
// CHECK:         nn.reshape %[[D1]] : tensor<2x3x4xf32> -> tensor<6x4xf32>
// expected-remark @below {{dropout at 0 embeddings, 2 branches that join residual sums}}
func.func @loss(%w: tensor<4x4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                %x: tensor<2x3x4xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
  %t = nn.transpose %x [1, 0, 2] : tensor<2x3x4xf32> -> tensor<3x2x4xf32>
  %b = nn.einsum "sbd,de->sbe" %t, %w : tensor<3x2x4xf32>, tensor<4x4xf32> -> tensor<3x2x4xf32>
  %x1 = arith.addf %t, %b : tensor<3x2x4xf32>
  %back = nn.transpose %x1 [1, 0, 2] : tensor<3x2x4xf32> -> tensor<2x3x4xf32>
  %rows = nn.reshape %back : tensor<2x3x4xf32> -> tensor<6x4xf32>
  %c = nn.einsum "rd,de->re" %rows, %w : tensor<6x4xf32>, tensor<4x4xf32> -> tensor<6x4xf32>
  %x2 = arith.addf %c, %rows : tensor<6x4xf32>
  %y = nn.einsum "rd,de->re" %x2, %w : tensor<6x4xf32>, tensor<4x4xf32> -> tensor<6x4xf32>
  %sum = nn.reduce sum %y dims = [0, 1] : tensor<6x4xf32> -> tensor<f32>
  %n = arith.constant dense<1.0> : tensor<f32>
  return %sum, %n : tensor<f32>, tensor<f32>
}

// -----

// The sum of two streams gets no second dropout, a term that refines logits is not a branch, and the
// scores of a layer are computed from the residual sum, not from the previous scores. The rotary
// embedding here is a product with a matrix.
// CHECK-LABEL: func @loss_train(
// CHECK:         %[[B:.+]] = nn.einsum "bsd,de->bse"
// CHECK-NEXT:    nn.dropout %[[B]], {{.*}} op_id = 0
// CHECK:         %[[C:.+]] = nn.einsum "bsd,de->bse"
// CHECK-NEXT:    nn.dropout %[[C]], {{.*}} op_id = 1
// CHECK-NOT:     nn.dropout
// CHECK:         return
// expected-remark @below {{dropout at 0 embeddings, 2 branches that join residual sums}}
func.func @loss(%w: tensor<4x4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                %r: tensor<4x4xf32> {nn.name = "r", nn.role = #nn.role<constant>},
                %cos: tensor<2x3x4xf32> {nn.name = "cos", nn.role = #nn.role<constant>},
                %x: tensor<2x3x4xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>},
                %z: tensor<2x3x4xf32> {nn.batch_dim = 0 : i64, nn.name = "z", nn.role = #nn.role<input>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
  %xz = arith.mulf %x, %z : tensor<2x3x4xf32>
  %b = nn.einsum "bsd,de->bse" %xz, %w : tensor<2x3x4xf32>, tensor<4x4xf32> -> tensor<2x3x4xf32>
  %x1 = arith.addf %x, %b : tensor<2x3x4xf32>
  %s1 = nn.einsum "bsd,btd->bst" %x1, %z : tensor<2x3x4xf32>, tensor<2x3x4xf32> -> tensor<2x3x3xf32>
  %c = nn.einsum "bsd,de->bse" %xz, %w : tensor<2x3x4xf32>, tensor<4x4xf32> -> tensor<2x3x4xf32>
  %z1 = arith.addf %z, %c : tensor<2x3x4xf32>
  %both = arith.addf %x1, %z1 : tensor<2x3x4xf32>
  %s2 = nn.einsum "bsd,btd->bst" %both, %both : tensor<2x3x4xf32>, tensor<2x3x4xf32> -> tensor<2x3x3xf32>
  %scores = arith.addf %s1, %s2 : tensor<2x3x3xf32>
  %values = nn.einsum "bst,btd->bsd" %scores, %both : tensor<2x3x3xf32>, tensor<2x3x4xf32> -> tensor<2x3x4xf32>
  %turned = nn.einsum "bsd,de->bse" %values, %r : tensor<2x3x4xf32>, tensor<4x4xf32> -> tensor<2x3x4xf32>
  %straight = arith.mulf %values, %cos : tensor<2x3x4xf32>
  %crooked = arith.mulf %turned, %cos : tensor<2x3x4xf32>
  %rot = arith.addf %straight, %crooked : tensor<2x3x4xf32>
  %logits = nn.einsum "bsd,de->bse" %rot, %w : tensor<2x3x4xf32>, tensor<4x4xf32> -> tensor<2x3x4xf32>
  %better = nn.einsum "bsd,de->bse" %logits, %w : tensor<2x3x4xf32>, tensor<4x4xf32> -> tensor<2x3x4xf32>
  %y = arith.addf %logits, %better : tensor<2x3x4xf32>
  %sum = nn.reduce sum %y dims = [0, 1, 2] : tensor<2x3x4xf32> -> tensor<f32>
  %n = arith.constant dense<1.0> : tensor<f32>
  return %sum, %n : tensor<f32>, tensor<f32>
}
