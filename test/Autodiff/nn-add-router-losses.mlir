// RUN: cleave-opt %s "--nn-add-router-losses=balance=0.5 squares=0.25" -split-input-file -verify-diagnostics | FileCheck %s
// RUN: cleave-opt %s "--nn-add-router-losses=balance=0.5 scope=microbatch" -split-input-file -verify-diagnostics | FileCheck %s --check-prefix=ALL
// RUN: cleave-opt %s --nn-add-router-losses -split-input-file | FileCheck %s --check-prefix=NONE

// Top-2 of four experts. A router bias changes the choice and does not enter the
// router probabilities. @loss stays.
// CHECK-LABEL: func @loss(
// CHECK-NOT:     nn.iota
// CHECK-LABEL: func @loss_train(
// CHECK:         %[[L:.+]] = nn.einsum
// CHECK:         %[[S:.+]] = nn.sigmoid %[[L]]
// CHECK:         nn.top_k
// CHECK:         %[[COUNTED:.+]] = arith.uitofp %{{.+}} : tensor<2x3xi1> to tensor<2x3xf32>
// CHECK:         arith.cmpi eq, %{{.+}}, %{{.+}} : tensor<2x3x2x4xi64>
// CHECK:         nn.reduce sum %{{.+}} dims = [1, 2] : tensor<2x3x2x4xf32> -> tensor<2x4xf32>
// CHECK:         %[[P:.+]] = arith.divf %[[S]], %{{.+}} : tensor<2x3x4xf32>
// CHECK:         nn.reduce sum %[[P]] dims = [1] : tensor<2x3x4xf32> -> tensor<2x4xf32>
// CHECK:         nn.reduce sum %[[COUNTED]] dims = [1] : tensor<2x3xf32> -> tensor<2xf32>
// CHECK:         nn.cross_entropy %[[L]]
// CHECK:         return
// NONE-NOT:    func @loss_train
// ALL-LABEL:   func @loss_train(
// ALL:           nn.reduce sum %{{.+}} dims = [0, 1, 2] : tensor<2x3x2x4xf32> -> tensor<4xf32>
// ALL-NOT:       nn.cross_entropy
// ALL:           return
func.func @loss(%w: tensor<5x4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                %e: tensor<4x5x7xf32> {nn.name = "e", nn.role = #nn.role<parameter>},
                %x: tensor<2x3x5xf32> {nn.name = "x", nn.role = #nn.role<input>},
                %labels: tensor<2x3xi64> {nn.name = "labels", nn.role = #nn.role<labels>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
  %bias = arith.constant dense<[0.1, 0.2, 0.3, 0.4]> : tensor<4xf32>
  %0 = nn.einsum "abc,cd->abd" %x, %w : tensor<2x3x5xf32>, tensor<5x4xf32> -> tensor<2x3x4xf32>
  %1 = nn.sigmoid %0 : tensor<2x3x4xf32>
  %2 = nn.broadcast %bias dims = [2] : tensor<4xf32> -> tensor<2x3x4xf32>
  %3 = arith.addf %1, %2 : tensor<2x3x4xf32>
  %p, %ids = nn.top_k %3 k = 2 : tensor<2x3x4xf32> -> tensor<2x3x2xf32>, tensor<2x3x2xi64>
  %4 = nn.broadcast %x dims = [0, 1, 3] : tensor<2x3x5xf32> -> tensor<2x3x2x5xf32>
  %5 = nn.grouped_dot %4, %e, %ids : tensor<2x3x2x5xf32>, tensor<4x5x7xf32>, tensor<2x3x2xi64> -> tensor<2x3x2x7xf32>
  %6 = nn.reduce sum %5 dims = [0, 1, 2, 3] : tensor<2x3x2x7xf32> -> tensor<f32>
  %one = arith.constant dense<1.0> : tensor<f32>
  return %6, %one : tensor<f32>, tensor<f32>
}
