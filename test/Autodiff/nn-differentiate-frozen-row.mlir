// RUN: cleave-opt %s --nn-differentiate | FileCheck %s

// A row without gradient: its index is replaced by one that is outside of the table.
// CHECK-LABEL: func @loss_grad
// CHECK-SAME:    %{{.+}}: tensor<7x3xf32> {{.*}}, %[[IDS:.+]]: tensor<2xi64>
// CHECK:         nn.gather %{{.+}}, %[[IDS]] dim = 0 {nn.frozen_row = 3 : i64}
// CHECK:         %[[ROW:.+]] = arith.constant dense<3> : tensor<2xi64>
// CHECK:         %[[IS:.+]] = arith.cmpi eq, %[[IDS]], %[[ROW]]
// CHECK:         %[[OUTSIDE:.+]] = arith.constant dense<-1> : tensor<2xi64>
// CHECK:         %[[AT:.+]] = arith.select %[[IS]], %[[OUTSIDE]], %[[IDS]]
// CHECK:         nn.scatter_add %[[AT]], %{{.+}} dim = 0 : tensor<2xi64>, tensor<2x3xf32> -> tensor<7x3xf32>
func.func @loss(%w: tensor<7x3xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                %ids: tensor<2xi64> {nn.name = "ids", nn.role = #nn.role<tokens>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
  %0 = nn.gather %w, %ids dim = 0 {nn.frozen_row = 3 : i64} : tensor<7x3xf32>, tensor<2xi64> -> tensor<2x3xf32>
  %1 = math.tanh %0 : tensor<2x3xf32>
  %2 = nn.reduce sum %1 dims = [0, 1] : tensor<2x3xf32> -> tensor<f32>
  %one = arith.constant dense<1.0> : tensor<f32>
  return %2, %one : tensor<f32>, tensor<f32>
}
