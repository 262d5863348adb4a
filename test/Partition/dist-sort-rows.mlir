// RUN: cleave-opt %s -dist-sort-rows | FileCheck %s

// A gated layer: rows are sorted once, and results are returned to token order once.
// CHECK-LABEL: func @gated
// CHECK-SAME:    %[[X:.+]]: tensor<5x6xf32>
// CHECK:         %[[ORDER:.+]], %[[PLACES:.+]], %[[IDS:.+]] = dist.sort_rows %{{.+}} groups 3
// CHECK:         %[[TOKENS:.+]] = arith.divui %[[ORDER]]
// CHECK:         %[[ROWS:.+]] = nn.gather %[[X]], %[[TOKENS]] dim = 0 : tensor<5x6xf32>, tensor<10xi64> -> tensor<10x6xf32>
// CHECK:         %[[GATE:.+]] = nn.grouped_dot %[[ROWS]], %{{.+}}, %[[IDS]]
// CHECK:         %[[UP:.+]] = nn.grouped_dot %[[ROWS]], %{{.+}}, %[[IDS]]
// CHECK:         %[[BIAS:.+]] = nn.gather %{{.+}}, %[[IDS]] dim = 0 : tensor<3x8xf32>, tensor<10xi64> -> tensor<10x8xf32>
// CHECK:         %[[SUM:.+]] = arith.addf %[[UP]], %[[BIAS]]
// CHECK:         %[[INNER:.+]] = arith.mulf %[[GATE]], %[[SUM]] : tensor<10x8xf32>
// CHECK:         %[[KEPT:.+]] = nn.save %[[INNER]]
// CHECK:         %[[DOWN:.+]] = nn.grouped_dot %[[KEPT]], %{{.+}}, %[[IDS]]
// CHECK-NOT:     nn.gather
// CHECK:         %[[BACK:.+]] = nn.gather %[[DOWN]], %[[PLACES]] dim = 0
// CHECK:         return %[[BACK]]
func.func @gated(%x: tensor<5x6xf32>, %gate: tensor<3x6x8xf32>, %up: tensor<3x6x8xf32>, %b: tensor<3x8xf32>,
                 %down: tensor<3x8x6xf32>, %ids: tensor<5x2xi64>) -> tensor<5x2x6xf32> {
  %0 = nn.broadcast %x dims = [0, 2] : tensor<5x6xf32> -> tensor<5x2x6xf32>
  %1 = nn.grouped_dot %0, %gate, %ids : tensor<5x2x6xf32>, tensor<3x6x8xf32>, tensor<5x2xi64> -> tensor<5x2x8xf32>
  %2 = nn.grouped_dot %0, %up, %ids : tensor<5x2x6xf32>, tensor<3x6x8xf32>, tensor<5x2xi64> -> tensor<5x2x8xf32>
  %3 = nn.gather %b, %ids dim = 0 : tensor<3x8xf32>, tensor<5x2xi64> -> tensor<5x2x8xf32>
  %4 = arith.addf %2, %3 : tensor<5x2x8xf32>
  %5 = arith.mulf %1, %4 : tensor<5x2x8xf32>
  %6 = nn.save %5 : tensor<5x2x8xf32>
  %7 = nn.grouped_dot %6, %down, %ids : tensor<5x2x8xf32>, tensor<3x8x6xf32>, tensor<5x2xi64> -> tensor<5x2x6xf32>
  return %7 : tensor<5x2x6xf32>
}

// The gradients of matrices and biases read sorted rows. Combine weights are sorted
// first and then broadcast over the width of a row.
// CHECK-LABEL: func @gradients
// CHECK-SAME:    %[[DY:.+]]: tensor<5x6xf32>, %[[W:.+]]: tensor<5x2xf32>
// CHECK-DAG:     %[[ROWS:.+]] = nn.gather %[[DY]], %{{.+}} dim = 0 : tensor<5x6xf32>, tensor<10xi64> -> tensor<10x6xf32>
// CHECK-DAG:     %[[LIST:.+]] = nn.reshape %[[W]] : tensor<5x2xf32> -> tensor<10xf32>
// CHECK-DAG:     %[[WEIGHTS:.+]] = nn.gather %[[LIST]], %{{.+}} dim = 0 : tensor<10xf32>, tensor<10xi64> -> tensor<10xf32>
// CHECK-DAG:     %[[SPREAD:.+]] = nn.broadcast %[[WEIGHTS]] dims = [0] : tensor<10xf32> -> tensor<10x6xf32>
// CHECK:         %[[D:.+]] = arith.mulf %[[ROWS]], %[[SPREAD]] : tensor<10x6xf32>
// CHECK:         nn.grouped_outer %{{.+}}, %[[D]], %{{.+}} : tensor<10x8xf32>, tensor<10x6xf32>, tensor<10xi64> -> tensor<3x8x6xf32>
// CHECK:         %[[DZ:.+]] = nn.grouped_dot %[[D]]
// CHECK:         nn.scatter_add %{{.+}}, %[[DZ]]
func.func @gradients(%dy: tensor<5x6xf32>, %w: tensor<5x2xf32>, %z: tensor<5x2x8xf32>, %down: tensor<3x8x6xf32>,
                     %ids: tensor<5x2xi64>) -> (tensor<3x8x6xf32>, tensor<3x8xf32>) {
  %0 = nn.broadcast %dy dims = [0, 2] : tensor<5x6xf32> -> tensor<5x2x6xf32>
  %1 = nn.broadcast %w dims = [0, 1] : tensor<5x2xf32> -> tensor<5x2x6xf32>
  %2 = arith.mulf %0, %1 : tensor<5x2x6xf32>
  %3 = nn.grouped_outer %z, %2, %ids : tensor<5x2x8xf32>, tensor<5x2x6xf32>, tensor<5x2xi64> -> tensor<3x8x6xf32>
  %4 = nn.grouped_dot %2, %down, %ids transposed : tensor<5x2x6xf32>, tensor<3x8x6xf32>, tensor<5x2xi64> -> tensor<5x2x8xf32>
  %5 = nn.scatter_add %ids, %4 dim = 0 : tensor<5x2xi64>, tensor<5x2x8xf32> -> tensor<3x8xf32>
  return %3, %5 : tensor<3x8x6xf32>, tensor<3x8xf32>
}

// Operations under a condition only move together with operations under the same condition.
// CHECK-LABEL: func @conditions
// CHECK:         dist.sort_rows %{{.+}} groups 3 {nn.when = 4 : i64}
// CHECK:         %[[Y:.+]] = nn.grouped_dot {{.*}}nn.when = 4 : i64
// CHECK:         %[[BACK:.+]] = nn.gather %[[Y]], %{{.+}} dim = 0 {nn.when = 4 : i64}
// CHECK:         dist.sort_rows %{{.+}} groups 3 :
// CHECK:         %[[AGAIN:.+]] = nn.gather %[[BACK]]
// CHECK:         arith.addf %[[AGAIN]], %[[AGAIN]] : tensor<5x8xf32>
func.func @conditions(%x: tensor<5x6xf32>, %w: tensor<3x6x8xf32>, %v: tensor<3x8x6xf32>, %ids: tensor<5xi64>) -> tensor<5x6xf32> {
  %0 = nn.grouped_dot %x, %w, %ids {nn.when = 4 : i64} : tensor<5x6xf32>, tensor<3x6x8xf32>, tensor<5xi64> -> tensor<5x8xf32>
  %1 = arith.addf %0, %0 : tensor<5x8xf32>
  %2 = nn.grouped_dot %1, %v, %ids : tensor<5x8xf32>, tensor<3x8x6xf32>, tensor<5xi64> -> tensor<5x6xf32>
  return %2 : tensor<5x6xf32>
}

// The same in bf16: casts are elementwise, so they apply to sorted rows as well.
// CHECK-LABEL: func @rounded
// CHECK:         %[[GATE:.+]] = nn.grouped_dot {{.*}} -> tensor<10x8xbf16>
// CHECK:         %[[WIDE:.+]] = arith.extf %[[GATE]] : tensor<10x8xbf16> to tensor<10x8xf32>
// CHECK:         %[[S:.+]] = nn.sigmoid %[[WIDE]] : tensor<10x8xf32>
// CHECK:         %[[R:.+]] = arith.truncf %[[S]] : tensor<10x8xf32> to tensor<10x8xbf16>
// CHECK:         %[[KEPT:.+]] = nn.save %[[R]] : tensor<10x8xbf16>
// CHECK:         nn.grouped_dot %[[KEPT]]
func.func @rounded(%x: tensor<5x6xbf16>, %gate: tensor<3x6x8xbf16>, %down: tensor<3x8x6xbf16>, %ids: tensor<5x2xi64>) -> tensor<5x2x6xbf16> {
  %0 = nn.broadcast %x dims = [0, 2] : tensor<5x6xbf16> -> tensor<5x2x6xbf16>
  %1 = nn.grouped_dot %0, %gate, %ids : tensor<5x2x6xbf16>, tensor<3x6x8xbf16>, tensor<5x2xi64> -> tensor<5x2x8xbf16>
  %2 = arith.extf %1 : tensor<5x2x8xbf16> to tensor<5x2x8xf32>
  %3 = nn.sigmoid %2 : tensor<5x2x8xf32>
  %4 = arith.truncf %3 : tensor<5x2x8xf32> to tensor<5x2x8xbf16>
  %5 = nn.save %4 : tensor<5x2x8xbf16>
  %6 = nn.grouped_dot %5, %down, %ids : tensor<5x2x8xbf16>, tensor<3x8x6xbf16>, tensor<5x2xi64> -> tensor<5x2x6xbf16>
  return %6 : tensor<5x2x6xbf16>
}
