// RUN: cleave-opt %s -split-input-file -dist-dispatch-experts="axis=x exchange=hierarchical" | FileCheck %s
// RUN: cleave-opt %s -split-input-file -dist-dispatch-experts="axis=x exchange=direct" | FileCheck %s --check-prefix=DIRECT
// RUN: not cleave-opt %s -dist-dispatch-experts="axis=y exchange=hierarchical" 2>&1 | FileCheck %s --check-prefix=ONE
// RUN: not cleave-opt %s -dist-dispatch-experts="axis=x exchange=both" 2>&1 | FileCheck %s --check-prefix=NAME
// ONE: a hierarchical exchange needs two or more nodes that have the same number of ranks each, two or more; the 3 ranks of axis 'y' are not placed so
// NAME: exchange is 'both'; expected auto, direct or hierarchical

// 2 nodes of 2 ranks: tokens are exchanged between nodes by expert id / 4, and within
// a node by expert id / 2 (the experts per node and per rank).
dist.mesh @m <["x"=4, "y"=3]> links ["inter", "intra"] within [2, 3]
// CHECK-LABEL: func @one(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: tensor<6x5xf32>, %[[W:[a-z0-9]+]]: tensor<2x5x7xf32>
// CHECK:         dist.plan_rows %{{.+}} tile 4 : tensor<6xi64> -> tensor<1x2x6xi64>
// CHECK:         dist.all_to_all_v %{{.+}} expect [6] over @m {"x":(1)2} purpose expert : tensor<2x6xi64>
// CHECK:         %[[THERE:.+]] = dist.all_to_all_v %{{.+}} expect [6] over @m {"x":(1)2} purpose expert : tensor<2x6x5xf32>
// CHECK:         dist.plan_rows %{{.+}} tile 2 : tensor<12xi64> -> tensor<2x2x6xi64>
// CHECK:         dist.condition
// CHECK:         nn.grouped_dot %{{.+}}, %[[W]], %{{.+}} {nn.row_share = 2 : i64} : tensor<2x6x5xf32>, tensor<2x5x7xf32>
// CHECK:         dist.all_to_all_v %{{.+}} expect [6] home over @m {"x":(2)2} purpose expert : tensor<2x6x7xf32>
// CHECK:         dist.all_to_all_v %{{.+}} expect [0] home over @m {"x":(2)2} purpose overflow {nn.when = 0 : i64} : tensor<2x6x7xf32>
// CHECK:         dist.all_to_all_v %{{.+}} expect [6] home over @m {"x":(1)2} purpose expert : tensor<2x6x7xf32>
// DIRECT-LABEL: func @one(
// DIRECT-NOT:    "x":
// DIRECT:        dist.plan_rows %{{.+}} tile 2
func.func @one(%x: tensor<6x5xf32>, %w: tensor<2x5x7xf32>, %ids: tensor<6xi64>) -> tensor<6x7xf32> {
  %0 = dist.all_gather %w dims [0] over @m {"x"} purpose expert : (tensor<2x5x7xf32>) -> tensor<8x5x7xf32>
  %1 = nn.grouped_dot %x, %0, %ids : tensor<6x5xf32>, tensor<8x5x7xf32>, tensor<6xi64> -> tensor<6x7xf32>
  return %1 : tensor<6x7xf32>
}

// Weight gradients are computed on the experts' own ranks: no reduce-scatter remains.
// CHECK-LABEL: func @gradient(
// CHECK-NOT:     dist.reduce_scatter
// CHECK:         nn.grouped_outer %{{.+}} -> tensor<2x5x7xf32>
// CHECK-NOT:     dist.reduce_scatter
func.func @gradient(%x: tensor<6x5xf32>, %dy: tensor<6x7xf32>, %ids: tensor<6xi64>) -> tensor<2x5x7xf32> {
  %one = arith.constant dense<1.0> : tensor<8x5x7xf32>
  %0 = nn.grouped_dot %x, %one, %ids : tensor<6x5xf32>, tensor<8x5x7xf32>, tensor<6xi64> -> tensor<6x7xf32>
  %1 = arith.mulf %0, %dy : tensor<6x7xf32>
  %2 = nn.grouped_outer %x, %1, %ids : tensor<6x5xf32>, tensor<6x7xf32>, tensor<6xi64> -> tensor<8x5x7xf32>
  %3 = dist.reduce_scatter sum %2 dims [0] over @m {"x"} purpose gradient : (tensor<8x5x7xf32>) -> tensor<2x5x7xf32>
  return %3 : tensor<2x5x7xf32>
}
