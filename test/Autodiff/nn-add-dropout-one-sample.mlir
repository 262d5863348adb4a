// RUN: cleave-opt %s "--nn-add-dropout=p=0.1" 2>%t | FileCheck %s
// RUN: FileCheck %s --check-prefix=SAID < %t

// A model exported with one sample may have dropped the batch dimension; masks are still per sample.
// SAID: warning: the dimension of samples is not known here; with one sample a call
// CHECK-LABEL: func @loss_train(
// CHECK-SAME:    %[[IDS:[a-z0-9]+]]: tensor<1xi64> {nn.name = "sample_ids", nn.role = #nn.role<sample_ids>}
// CHECK:         %[[B:.+]] = nn.einsum "sh,hk->sk"
// CHECK:         %[[ONE:.+]] = nn.reshape %[[B]] : tensor<5x3xf32> -> tensor<1x5x3xf32>
// CHECK:         %[[D:.+]] = nn.dropout %[[ONE]], %{{.+}}, %{{.+}}, %[[IDS]] p = 1.000000e-01 op_id = 0 global_shape = [1, 5, 3]
// CHECK:         %[[BACK:.+]] = nn.reshape %[[D]] : tensor<1x5x3xf32> -> tensor<5x3xf32>
// CHECK:         arith.addf %{{.+}}, %[[BACK]]
func.func @loss(%w: tensor<3x3xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                %x: tensor<1x5x3xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
  %0 = nn.reshape %x : tensor<1x5x3xf32> -> tensor<5x3xf32>
  %1 = nn.einsum "sh,hk->sk" %0, %w : tensor<5x3xf32>, tensor<3x3xf32> -> tensor<5x3xf32>
  %2 = arith.addf %0, %1 : tensor<5x3xf32>
  %y = nn.einsum "sh,hk->sk" %2, %w : tensor<5x3xf32>, tensor<3x3xf32> -> tensor<5x3xf32>
  %3 = nn.reduce sum %y dims = [0, 1] : tensor<5x3xf32> -> tensor<f32>
  %one = arith.constant dense<1.0> : tensor<f32>
  return %3, %one : tensor<f32>, tensor<f32>
}
