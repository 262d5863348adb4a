// RUN: cleave-opt %s -dist-dispatch-experts="axis=x exchange=hierarchical max-load=1" | FileCheck %s

// Capacity for a balanced share only. The exchange between nodes has a second round,
// whose condition the ranks of a node share. Within a node each of the two rounds has
// a second round, which needs both conditions.
dist.mesh @m <["x"=4]> links ["inter"] within [2]
// CHECK-LABEL: func @rounds(
// CHECK:         dist.plan_rows %{{.+}} tile 4 : tensor<6xi64> -> tensor<2x2x3xi64>
// CHECK:         dist.all_gather %{{.+}} over @m {"x":(1)2} purpose expert : (tensor<2x2xi64>) -> tensor<4x2xi64>
// CHECK:         dist.all_gather %{{.+}} over @m {"x":(2)2} purpose expert : (tensor<2xi64>) -> tensor<4xi64>
// CHECK:         %[[BETWEEN:.+]] = arith.cmpi sgt
// CHECK:         dist.condition %[[BETWEEN]] number 0
// CHECK:         dist.plan_rows %{{.+}} tile 2 : tensor<6xi64> -> tensor<2x2x3xi64>
// CHECK:         dist.condition %{{.+}} number 1
// CHECK:         dist.plan_rows %{{.+}} tile 2 {nn.when = 0 : i64} : tensor<6xi64>
// CHECK:         dist.all_gather %{{.+}} over @m {"x":(2)2} purpose overflow {nn.when = 0 : i64}
// CHECK:         %[[WITHIN:.+]] = arith.cmpi sgt, %{{.+}} {nn.when = 0 : i64}
// CHECK:         %[[BOTH:.+]] = arith.andi %[[BETWEEN]], %[[WITHIN]] : tensor<1xi1>
// CHECK:         dist.condition %[[BOTH]] number 2 : tensor<1xi1>
// CHECK:         dist.all_to_all_v %{{.+}} expect [0] over @m {"x":(2)2} purpose overflow {nn.when = 0 : i64}
// CHECK:         dist.all_to_all_v %{{.+}} expect [0] over @m {"x":(2)2} purpose overflow {nn.when = 2 : i64}
func.func @rounds(%x: tensor<6x5xf32>, %w: tensor<2x5x7xf32>, %ids: tensor<6xi64>) -> tensor<6x7xf32> {
  %0 = dist.all_gather %w dims [0] over @m {"x"} purpose expert : (tensor<2x5x7xf32>) -> tensor<8x5x7xf32>
  %1 = nn.grouped_dot %x, %0, %ids : tensor<6x5xf32>, tensor<8x5x7xf32>, tensor<6xi64> -> tensor<6x7xf32>
  return %1 : tensor<6x7xf32>
}
