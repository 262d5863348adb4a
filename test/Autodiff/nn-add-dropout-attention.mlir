// RUN: cleave-opt %s "--nn-add-dropout=p=0.1" --split-input-file | FileCheck %s
// RUN: cleave-opt %s "--nn-add-dropout=p=0.1" --nn-differentiate --split-input-file | FileCheck %s --check-prefix=GRAD

// Attention weights are dropped by keys derived from sample and head. Their dropout operations are
// numbered after those of the residual stream. @loss stays as it was.
// CHECK-LABEL: func @loss(
// CHECK-NOT:     dropout
// CHECK-LABEL: func @loss_train(
// CHECK-SAME:    %[[IDS:[a-z0-9]+]]: tensor<2xi64> {nn.name = "sample_ids", nn.role = #nn.role<sample_ids>}
// CHECK-SAME:    %[[SEED:[a-z0-9]+]]: tensor<i64> {nn.name = "seed", nn.role = #nn.role<seed>}
// CHECK-SAME:    %[[STEP:[a-z0-9]+]]: tensor<i64> {nn.name = "step", nn.role = #nn.role<step>}
// CHECK:         arith.xori %{{.*}}, %[[SEED]]
// CHECK:         arith.xori %{{.*}}, %[[STEP]]
// CHECK:         arith.xori %{{.*}}, %[[IDS]]
// Head n of group g has index 2 n + g; the attention with number 1 adds 2^32.
// CHECK:         %[[N:.+]] = nn.iota dim = 1 : tensor<2x3x2xi64>
// CHECK-NEXT:    %[[GROUP:.+]] = arith.constant dense<2> : tensor<2x3x2xi64>
// CHECK-NEXT:    %[[FIRST:.+]] = arith.muli %[[N]], %[[GROUP]]
// CHECK-NEXT:    %[[G:.+]] = nn.iota dim = 2 : tensor<2x3x2xi64>
// CHECK:         %[[HEAD:.+]] = arith.addi %[[FIRST]], %[[G]]
// CHECK:         %[[NUMBER:.+]] = arith.constant dense<4294967296> : tensor<2x3x2xi64>
// CHECK:         %[[ID:.+]] = arith.addi %[[HEAD]], %[[NUMBER]]
// CHECK:         arith.xori %{{.*}}, %[[ID]]
// CHECK:         arith.muli
// CHECK:         arith.muli
// CHECK:         arith.shrui
// CHECK:         %[[KEYS:.+]] = arith.xori {{.*}} : tensor<2x3x2xi64>
// CHECK-NEXT:    %[[QI:.+]] = nn.iota dim = 0 : tensor<5xi64>
// CHECK:         %[[KI:.+]] = nn.iota dim = 0 : tensor<7xi64>
// CHECK:         nn.attention {{.*}} dropout(%[[KEYS]], %[[QI]], %[[KI]]) p = 1.000000e-01 scale = 5.000000e-01
// CHECK:         nn.dropout {{.*}} op_id = 0

// The derivative applies the same dropout mask.
// GRAD-LABEL:  func @loss_grad
// GRAD:          nn.attention {{.*}} dropout(
// GRAD:          nn.attention_grad {{.*}} dropout(
func.func @loss(%w: tensor<12x12xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                %x: tensor<2x5x12xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>},
                %k: tensor<2x7x3x2xf32> {nn.batch_dim = 0 : i64, nn.name = "k", nn.role = #nn.role<input>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
  %0 = nn.einsum "bsh,hk->bsk" %x, %w : tensor<2x5x12xf32>, tensor<12x12xf32> -> tensor<2x5x12xf32>
  %q = nn.reshape %0 : tensor<2x5x12xf32> -> tensor<2x5x3x2x2xf32>
  %o, %lse = nn.attention %q, %k, %k scale = 0.5
    : (tensor<2x5x3x2x2xf32>, tensor<2x7x3x2xf32>, tensor<2x7x3x2xf32>) -> (tensor<2x5x3x2x2xf32>, tensor<2x3x2x5xf32>)
  %1 = nn.reshape %o : tensor<2x5x3x2x2xf32> -> tensor<2x5x12xf32>
  %2 = nn.einsum "bsh,hk->bsk" %1, %w : tensor<2x5x12xf32>, tensor<12x12xf32> -> tensor<2x5x12xf32>
  %3 = arith.addf %x, %2 : tensor<2x5x12xf32>
  %y = nn.einsum "bsh,hk->bsk" %3, %w : tensor<2x5x12xf32>, tensor<12x12xf32> -> tensor<2x5x12xf32>
  %4 = nn.reduce sum %y dims = [0, 1, 2] : tensor<2x5x12xf32> -> tensor<f32>
  %one = arith.constant dense<1.0> : tensor<f32>
  return %4, %one : tensor<f32>, tensor<f32>
}

// -----

// Attention gets dropout even without a residual branch; each window of a sample has its own key.
// CHECK-LABEL: func @loss_train(
// CHECK:         %[[WINDOW:.+]] = nn.iota dim = 1 : tensor<2x3xi64>
// CHECK:         arith.xori %{{.*}}, %[[WINDOW]]
// CHECK:         nn.reshape %{{.*}} : tensor<2x3xi64> -> tensor<6xi64>
// CHECK:         nn.attention {{.*}} dropout(
// GRAD-LABEL:  func @loss_grad
// GRAD:          nn.attention_grad {{.*}} dropout(
func.func @loss(%w: tensor<4x4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                %x: tensor<2x15x4xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
  %0 = nn.einsum "bsh,hk->bsk" %x, %w : tensor<2x15x4xf32>, tensor<4x4xf32> -> tensor<2x15x4xf32>
  %q = nn.reshape %0 : tensor<2x15x4xf32> -> tensor<6x5x2x1x2xf32>
  %k = nn.reshape %0 : tensor<2x15x4xf32> -> tensor<6x5x2x2xf32>
  %o, %lse = nn.attention %q, %k, %k scale = 0.5
    : (tensor<6x5x2x1x2xf32>, tensor<6x5x2x2xf32>, tensor<6x5x2x2xf32>) -> (tensor<6x5x2x1x2xf32>, tensor<6x2x1x5xf32>)
  %4 = nn.reduce sum %o dims = [0, 1, 2, 3, 4] : tensor<6x5x2x1x2xf32> -> tensor<f32>
  %one = arith.constant dense<1.0> : tensor<f32>
  return %4, %one : tensor<f32>, tensor<f32>
}
