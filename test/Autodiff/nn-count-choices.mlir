// RUN: cleave-opt %s --nn-count-choices -split-input-file | FileCheck %s
// RUN: cleave-opt %s "--nn-count-choices=update-biases" -split-input-file | FileCheck %s --check-prefix=BIAS

// Top-2 of four experts, and a bias that changes the choice only. @loss stays.
// CHECK-LABEL: func @loss(
// CHECK-SAME:    %arg1: tensor<4xf32> {nn.name = "bias", nn.role = #nn.role<parameter>}
// CHECK-NOT:     nn.iota
// CHECK-LABEL: func @loss_train(
// CHECK-SAME:    %arg1: tensor<4xf32> {nn.name = "bias", nn.role = #nn.role<parameter>}
// CHECK-SAME:    tensor<4xi64> {nn.name = "mlp.gate.chosen", nn.role = #nn.role<accumulator>, nn.router = #nn.router<name = "mlp.gate", counts = chosen, slots_per_token = 2, product = "dot">})
// CHECK:         %[[ID:.+]], %[[IDS:.+]] = nn.top_k
// CHECK:         %[[LIST:.+]] = nn.iota dim = 0 : tensor<4xi64>
// CHECK-DAG:     %[[A:.+]] = nn.broadcast %[[IDS]] dims = [0, 1, 2]
// CHECK-DAG:     %[[B:.+]] = nn.broadcast %[[LIST]] dims = [3]
// CHECK:         %[[HIT:.+]] = arith.cmpi eq, %[[A]], %[[B]] : tensor<2x3x2x4xi64>
// CHECK:         %[[ONE:.+]] = arith.extui %[[HIT]]
// CHECK:         %[[SUM:.+]] = nn.reduce sum %[[ONE]] dims = [0, 1, 2] : tensor<2x3x2x4xi64> -> tensor<4xi64>
// CHECK:         return %{{.+}}, %{{.+}}, %[[SUM]]
// The bias becomes a buffer everywhere.
// BIAS-LABEL:  func @loss(
// BIAS-SAME:     %arg1: tensor<4xf32> {nn.name = "bias", nn.role = #nn.role<buffer>}
// BIAS-LABEL:  func @loss_train(
// BIAS-SAME:     %arg1: tensor<4xf32> {nn.name = "bias", nn.role = #nn.role<buffer>}
// BIAS-SAME:     nn.router = #nn.router<name = "mlp.gate", counts = chosen, {{.*}}bias = "bias">
func.func @loss(%w: tensor<5x4xf32> {nn.name = "mlp.gate.weight", nn.role = #nn.role<parameter>},
                %bias: tensor<4xf32> {nn.name = "bias", nn.role = #nn.role<parameter>},
                %e: tensor<4x5x7xf32> {nn.name = "e", nn.role = #nn.role<parameter>},
                %x: tensor<2x3x5xf32> {nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
  %0 = nn.einsum "abc,cd->abd" %x, %w : tensor<2x3x5xf32>, tensor<5x4xf32> -> tensor<2x3x4xf32>
  %1 = nn.sigmoid %0 : tensor<2x3x4xf32>
  %2 = nn.broadcast %bias dims = [2] : tensor<4xf32> -> tensor<2x3x4xf32>
  %3 = arith.addf %1, %2 : tensor<2x3x4xf32>
  %p, %ids = nn.top_k %3 k = 2 : tensor<2x3x4xf32> -> tensor<2x3x2xf32>, tensor<2x3x2xi64>
  %4 = nn.broadcast %x dims = [0, 1, 3] : tensor<2x3x5xf32> -> tensor<2x3x2x5xf32>
  %5 = nn.grouped_dot %4, %e, %ids : tensor<2x3x2x5xf32>, tensor<4x5x7xf32>, tensor<2x3x2xi64> -> tensor<2x3x2x7xf32> loc("dot")
  %6 = nn.reduce sum %5 dims = [0, 1, 2, 3] : tensor<2x3x2x7xf32> -> tensor<f32>
  %one = arith.constant dense<1.0> : tensor<f32>
  return %6, %one : tensor<f32>, tensor<f32>
}
