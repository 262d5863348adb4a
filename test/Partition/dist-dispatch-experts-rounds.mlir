// RUN: cleave-opt %s -split-input-file -dist-dispatch-experts="axis=x max-load=1" | FileCheck %s
// RUN: not cleave-opt %s -split-input-file -dist-dispatch-experts="axis=x max-load=0.5" 2>&1 | FileCheck %s --check-prefix=LESS
// LESS: max-load is 5.{{.*}}; expected at least 1

// 5 tokens, and receive buffers for 3 tokens from each rank: a second round runs under
// a condition on which all ranks agree. The result takes each token from its round.
dist.mesh @m <["x"=2]>
// CHECK-LABEL: func @two_rounds(
// CHECK:         dist.plan_rows %{{.+}} tile 3 : tensor<5xi64> -> tensor<2x2x3xi64>, tensor<5xi64>, tensor<2x2x3xi64>, tensor<2x2xi64>
// CHECK:         %[[ALL:.+]] = dist.all_gather %{{.+}} dims [0] over @m {"x"} purpose expert : (tensor<2x2xi64>) -> tensor<4x2xi64>
// CHECK:         %[[NEEDED:.+]] = arith.cmpi sgt, %{{.+}} : tensor<1xi64>
// CHECK:         dist.condition %[[NEEDED]] number 0
// CHECK:         dist.all_to_all_v %{{.+}} expect [5] over @m {"x"} purpose expert : tensor<2x3x6xf32>
// CHECK:         nn.grouped_dot %{{.+}} {nn.row_share = 1 : i64} : tensor<2x3x6xf32>
// CHECK:         dist.all_to_all_v %{{.+}} expect [0] over @m {"x"} purpose overflow {nn.when = 0 : i64} : tensor<2x3x6xf32>
// CHECK:         nn.grouped_dot %{{.+}} {nn.row_share = 6 : i64, nn.when = 0 : i64} : tensor<2x3x6xf32>
// CHECK:         %[[FIRST:.+]] = nn.gather %{{.+}} : tensor<6x8xf32>, tensor<5xi64> -> tensor<5x8xf32>
// CHECK:         %[[SECOND:.+]] = nn.gather %{{.+}} : tensor<6x8xf32>, tensor<5xi64> -> tensor<5x8xf32>
// CHECK:         arith.addf %[[FIRST]], %[[SECOND]] : tensor<5x8xf32>
func.func @two_rounds(%x: tensor<5x6xf32>, %w: tensor<3x6x8xf32>, %ids: tensor<5xi64>) -> tensor<5x8xf32> {
  %0 = dist.all_gather %w dims [0] over @m {"x"} purpose expert : (tensor<3x6x8xf32>) -> tensor<6x6x8xf32>
  %1 = nn.grouped_dot %x, %0, %ids : tensor<5x6xf32>, tensor<6x6x8xf32>, tensor<5xi64> -> tensor<5x8xf32>
  return %1 : tensor<5x8xf32>
}

// -----

// Residuals of the first round are saved; the second round dispatches its tokens and
// recomputes its products. The gradient of a skipped round is not added.
dist.mesh @m <["x"=2]>
// CHECK-LABEL: func @backward(
// CHECK:         %[[HERE:.+]] = dist.all_to_all_v %{{.+}} purpose expert : tensor<2x3x6xf32>
// CHECK:         %[[INNER:.+]] = nn.grouped_dot %[[HERE]]
// CHECK:         %[[OPEN:.+]] = nn.sigmoid %[[INNER]]
// CHECK:         %[[KEPT:.+]] = nn.save %[[OPEN]]
// CHECK:         %[[ONE:.+]] = nn.grouped_outer %[[KEPT]], %
// CHECK:         %[[AGAIN:.+]] = dist.all_to_all_v %{{.+}} purpose overflow {nn.when = 0 : i64} : tensor<2x3x6xf32>
// CHECK:         %[[PRODUCT:.+]] = nn.grouped_dot %[[AGAIN]]
// CHECK:         %[[MADE:.+]] = nn.sigmoid %[[PRODUCT]] {nn.when = 0 : i64}
// CHECK:         %[[TWO:.+]] = nn.grouped_outer %[[MADE]], %
// CHECK:         %[[CHOSEN:.+]] = arith.select %{{.+}}, %[[TWO]], %
// CHECK:         arith.addf %[[ONE]], %[[CHOSEN]]
func.func @backward(%x: tensor<5x6xf32>, %w: tensor<3x6x8xf32>, %ids: tensor<5xi64>, %dy: tensor<5x6xf32>)
    -> (tensor<5x8xf32>, tensor<3x8x6xf32>) {
  %0 = dist.all_gather %w dims [0] over @m {"x"} purpose expert : (tensor<3x6x8xf32>) -> tensor<6x6x8xf32>
  %1 = nn.grouped_dot %x, %0, %ids : tensor<5x6xf32>, tensor<6x6x8xf32>, tensor<5xi64> -> tensor<5x8xf32>
  %2 = nn.sigmoid %1 : tensor<5x8xf32>
  %kept = nn.save %2 : tensor<5x8xf32>
  %3 = nn.grouped_outer %kept, %dy, %ids : tensor<5x8xf32>, tensor<5x6xf32>, tensor<5xi64> -> tensor<6x8x6xf32>
  %4 = dist.reduce_scatter sum %3 dims [0] over @m {"x"} purpose gradient : (tensor<6x8x6xf32>) -> tensor<3x8x6xf32>
  return %2, %4 : tensor<5x8xf32>, tensor<3x8x6xf32>
}
