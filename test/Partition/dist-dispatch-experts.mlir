// RUN: cleave-opt %s -split-input-file -dist-dispatch-experts=axis=x | FileCheck %s

// Counts are exchanged first, then ids and tokens; matrices are not gathered.
dist.mesh @m <["x"=2]>
// CHECK-LABEL: func @one(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: tensor<5x6xf32>, %[[W:[a-z0-9]+]]: tensor<3x6x8xf32>, %[[IDS:[a-z0-9]+]]: tensor<5xi64>
// CHECK-NOT:     dist.all_gather
// CHECK:         %[[SOURCES:.+]], %[[PLACES:.+]], %[[SENT:.+]], %[[COUNTS:.+]] = dist.plan_rows %{{.+}} tile 3
// CHECK:         dist.all_to_all %[[COUNTS]]
// CHECK:         %[[OWN:.+]] = nn.reshape %[[COUNTS]] : tensor<2x1xi64> -> tensor<2xi64>
// CHECK:         %[[RECEIVED:.+]] = nn.reshape %{{.+}} : tensor<2x1xi64> -> tensor<2xi64>
// CHECK:         %[[RAW:.+]] = dist.all_to_all_v %{{.+}} sent %[[OWN]] received %[[RECEIVED]] expect [5] over @m {"x"} purpose expert
// CHECK:         %[[THERE:.+]] = arith.select %{{.+}}, %[[RAW]], %{{.+}} : tensor<2x5xi1>, tensor<2x5xi64>
// CHECK:         %[[SORTED:.+]] = nn.gather %{{.+}} dim = 0 : tensor<5x6xf32>, tensor<2x5xi64> -> tensor<2x5x6xf32>
// CHECK:         %[[ROWS:.+]] = dist.all_to_all_v %[[SORTED]] sent %[[OWN]] received %[[RECEIVED]]
// CHECK:         %[[Y:.+]] = nn.grouped_dot %[[ROWS]], %[[W]], %[[THERE]] {nn.row_share = 2 : i64} : tensor<2x5x6xf32>, tensor<3x6x8xf32>, tensor<2x5xi64> -> tensor<2x5x8xf32>
// CHECK:         %[[HOME:.+]] = dist.all_to_all_v %[[Y]] sent %[[RECEIVED]] received %[[OWN]]
// CHECK:         nn.gather %{{.+}}, %[[PLACES]] dim = 0 : tensor<10x8xf32>, tensor<5xi64> -> tensor<5x8xf32>
func.func @one(%x: tensor<5x6xf32>, %w: tensor<3x6x8xf32>, %ids: tensor<5xi64>) -> tensor<5x8xf32> {
  %0 = dist.all_gather %w dims [0] over @m {"x"} purpose expert : (tensor<3x6x8xf32>) -> tensor<6x6x8xf32>
  %1 = nn.grouped_dot %x, %0, %ids : tensor<5x6xf32>, tensor<6x6x8xf32>, tensor<5xi64> -> tensor<5x8xf32>
  return %1 : tensor<5x8xf32>
}

// -----

// Tokens stay with their experts between products: a gated layer exchanges them four
// times in forward and backward. The weight gradients need no sum over the axis.
dist.mesh @m <["x"=2]>
// CHECK-LABEL: func @layer(
// CHECK-NOT:     dist.all_gather
// CHECK:         dist.all_to_all_v %{{.+}} : tensor<2x5xi64>
// CHECK:         %[[X:.+]] = dist.all_to_all_v %{{.+}} : tensor<2x5x6xf32>
// CHECK:         %[[KEPT:.+]] = nn.save %[[X]]
// CHECK-NOT:     dist.all_to_all_v
// CHECK:         %[[G:.+]] = nn.grouped_dot %[[X]]
// CHECK:         %[[U:.+]] = nn.grouped_dot %[[X]]
// CHECK:         %[[INNER:.+]] = arith.mulf %{{.+}}, %[[U]] : tensor<2x5x8xf32>
// CHECK:         nn.grouped_dot %[[INNER]]
// CHECK:         dist.all_to_all_v %{{.+}} : tensor<2x5x6xf32>
// CHECK-NOT:     dist.all_to_all_v
// CHECK:         %[[DY:.+]] = dist.all_to_all_v %{{.+}} : tensor<2x5x6xf32>
// CHECK-NOT:     dist.all_to_all_v
// CHECK:         nn.grouped_outer %{{.+}}, %[[DY]], %{{.+}} -> tensor<3x8x6xf32>
// CHECK:         nn.grouped_outer %[[KEPT]], %
// CHECK:         nn.grouped_outer %[[KEPT]], %
// CHECK:         %[[DX:.+]] = arith.addf %{{.+}} : tensor<2x5x6xf32>
// CHECK:         dist.all_to_all_v %[[DX]]
// CHECK-NOT:     dist.all_to_all_v
// CHECK-NOT:     dist.reduce_scatter
func.func @layer(%x: tensor<5x6xf32>, %g: tensor<3x6x8xf32>, %u: tensor<3x6x8xf32>, %d: tensor<3x8x6xf32>, %ids: tensor<5xi64>, %dy: tensor<5x6xf32>)
    -> (tensor<5x6xf32>, tensor<5x6xf32>, tensor<3x6x8xf32>, tensor<3x6x8xf32>, tensor<3x8x6xf32>) {
  %gate:2 = dist.all_gather %g, %u dims [0, 0] over @m {"x"} purpose expert : (tensor<3x6x8xf32>, tensor<3x6x8xf32>) -> (tensor<6x6x8xf32>, tensor<6x6x8xf32>)
  %down = dist.all_gather %d dims [0] over @m {"x"} purpose expert : (tensor<3x8x6xf32>) -> tensor<6x8x6xf32>
  %0 = nn.grouped_dot %x, %gate#0, %ids : tensor<5x6xf32>, tensor<6x6x8xf32>, tensor<5xi64> -> tensor<5x8xf32>
  %1 = nn.grouped_dot %x, %gate#1, %ids : tensor<5x6xf32>, tensor<6x6x8xf32>, tensor<5xi64> -> tensor<5x8xf32>
  %2 = nn.sigmoid %0 : tensor<5x8xf32>
  %3 = arith.mulf %2, %1 : tensor<5x8xf32>
  %y = nn.grouped_dot %3, %down, %ids : tensor<5x8xf32>, tensor<6x8x6xf32>, tensor<5xi64> -> tensor<5x6xf32>
  %sx = nn.save %x : tensor<5x6xf32>
  %si = nn.save %ids : tensor<5xi64>
  %s1 = nn.save %1 : tensor<5x8xf32>
  %s2 = nn.save %2 : tensor<5x8xf32>
  %s3 = nn.save %3 : tensor<5x8xf32>
  %dd = nn.grouped_outer %s3, %dy, %si : tensor<5x8xf32>, tensor<5x6xf32>, tensor<5xi64> -> tensor<6x8x6xf32>
  %dinner = nn.grouped_dot %dy, %down, %si transposed : tensor<5x6xf32>, tensor<6x8x6xf32>, tensor<5xi64> -> tensor<5x8xf32>
  %du = arith.mulf %dinner, %s2 : tensor<5x8xf32>
  %ds = arith.mulf %dinner, %s1 : tensor<5x8xf32>
  %dg = arith.mulf %ds, %s2 : tensor<5x8xf32>
  %dgate = nn.grouped_outer %sx, %dg, %si : tensor<5x6xf32>, tensor<5x8xf32>, tensor<5xi64> -> tensor<6x6x8xf32>
  %dup = nn.grouped_outer %sx, %du, %si : tensor<5x6xf32>, tensor<5x8xf32>, tensor<5xi64> -> tensor<6x6x8xf32>
  %dx0 = nn.grouped_dot %dg, %gate#0, %si transposed : tensor<5x8xf32>, tensor<6x6x8xf32>, tensor<5xi64> -> tensor<5x6xf32>
  %dx1 = nn.grouped_dot %du, %gate#1, %si transposed : tensor<5x8xf32>, tensor<6x6x8xf32>, tensor<5xi64> -> tensor<5x6xf32>
  %dx = arith.addf %dx0, %dx1 : tensor<5x6xf32>
  %tiles:2 = dist.reduce_scatter sum %dgate, %dup dims [0, 0] over @m {"x"} purpose gradient : (tensor<6x6x8xf32>, tensor<6x6x8xf32>) -> (tensor<3x6x8xf32>, tensor<3x6x8xf32>)
  %tile = dist.reduce_scatter sum %dd dims [0] over @m {"x"} purpose gradient : (tensor<6x8x6xf32>) -> tensor<3x8x6xf32>
  return %y, %dx, %tiles#0, %tiles#1, %tile : tensor<5x6xf32>, tensor<5x6xf32>, tensor<3x6x8xf32>, tensor<3x6x8xf32>, tensor<3x8x6xf32>
}

// -----

// 5 matrices on 2 ranks: ids that point to the padding are sent nowhere.
dist.mesh @m <["x"=2]>
// CHECK-LABEL: func @padded(
// CHECK:         %[[FIVE:.+]] = arith.constant dense<5>
// CHECK:         %[[INSIDE:.+]] = arith.cmpi slt, %{{.+}}, %[[FIVE]]
// CHECK:         arith.select %[[INSIDE]]
// CHECK:         dist.plan_rows
func.func @padded(%x: tensor<5x6xf32>, %w: tensor<3x6x8xf32>, %ids: tensor<5xi64>) -> tensor<5x8xf32> {
  %0 = dist.all_gather %w dims [0] over @m {"x"} purpose expert : (tensor<3x6x8xf32>) -> tensor<6x6x8xf32>
  %1 = nn.slice %0 [0, 0, 0] [5, 6, 8] [1, 1, 1] : tensor<6x6x8xf32> -> tensor<5x6x8xf32>
  %2 = nn.grouped_dot %x, %1, %ids : tensor<5x6xf32>, tensor<5x6x8xf32>, tensor<5xi64> -> tensor<5x8xf32>
  return %2 : tensor<5x8xf32>
}

// -----

// Matrices gathered over another axis, or along another dimension, stay gathered.
dist.mesh @m <["x"=2, "y"=2]>
// CHECK-LABEL: func @negative_other(
// CHECK-NOT:     dist.plan_rows
func.func @negative_other(%x: tensor<5x6xf32>, %w: tensor<3x6x8xf32>, %v: tensor<6x6x4xf32>, %ids: tensor<5xi64>) -> (tensor<5x8xf32>, tensor<5x8xf32>) {
  %0 = dist.all_gather %w dims [0] over @m {"y"} purpose expert : (tensor<3x6x8xf32>) -> tensor<6x6x8xf32>
  %1 = nn.grouped_dot %x, %0, %ids : tensor<5x6xf32>, tensor<6x6x8xf32>, tensor<5xi64> -> tensor<5x8xf32>
  %2 = dist.all_gather %v dims [2] over @m {"x"} purpose expert : (tensor<6x6x4xf32>) -> tensor<6x6x8xf32>
  %3 = nn.grouped_dot %x, %2, %ids : tensor<5x6xf32>, tensor<6x6x8xf32>, tensor<5xi64> -> tensor<5x8xf32>
  return %1, %3 : tensor<5x8xf32>, tensor<5x8xf32>
}

// -----

// A bias per expert is read on the expert's rank, where its gradient is complete.
dist.mesh @m <["x"=2]>
// CHECK-LABEL: func @bias(
// CHECK-SAME:    %[[B:[a-z0-9]+]]: tensor<3x8xf32>
// CHECK-NOT:     dist.all_gather
// CHECK:         %[[Y:.+]] = nn.grouped_dot
// CHECK:         %[[ROW:.+]] = nn.gather %[[B]], %[[CHOSEN:.+]] dim = 0 : tensor<3x8xf32>, tensor<2x5xi64> -> tensor<2x5x8xf32>
// CHECK:         %[[BOTH:.+]] = arith.addf %[[Y]], %[[ROW]]
// CHECK:         nn.grouped_dot %[[BOTH]]
// CHECK:         nn.scatter_add %[[CHOSEN]], %{{.+}} dim = 0 : tensor<2x5xi64>, tensor<2x5x8xf32> -> tensor<3x8xf32>
// CHECK-NOT:     dist.reduce_scatter
func.func @bias(%x: tensor<5x6xf32>, %w: tensor<3x6x8xf32>, %b: tensor<3x8xf32>, %d: tensor<3x8x6xf32>, %ids: tensor<5xi64>, %dy: tensor<5x6xf32>)
    -> (tensor<5x6xf32>, tensor<3x8xf32>) {
  %0:3 = dist.all_gather %w, %b, %d dims [0, 0, 0] over @m {"x"} purpose expert
    : (tensor<3x6x8xf32>, tensor<3x8xf32>, tensor<3x8x6xf32>) -> (tensor<6x6x8xf32>, tensor<6x8xf32>, tensor<6x8x6xf32>)
  %1 = nn.grouped_dot %x, %0#0, %ids : tensor<5x6xf32>, tensor<6x6x8xf32>, tensor<5xi64> -> tensor<5x8xf32>
  %2 = nn.gather %0#1, %ids dim = 0 : tensor<6x8xf32>, tensor<5xi64> -> tensor<5x8xf32>
  %3 = arith.addf %1, %2 : tensor<5x8xf32>
  %4 = nn.grouped_dot %3, %0#2, %ids : tensor<5x8xf32>, tensor<6x8x6xf32>, tensor<5xi64> -> tensor<5x6xf32>
  %5 = nn.grouped_dot %dy, %0#2, %ids transposed : tensor<5x6xf32>, tensor<6x8x6xf32>, tensor<5xi64> -> tensor<5x8xf32>
  %6 = nn.scatter_add %ids, %5 dim = 0 : tensor<5xi64>, tensor<5x8xf32> -> tensor<6x8xf32>
  %7 = dist.reduce_scatter sum %6 dims [0] over @m {"x"} purpose gradient : (tensor<6x8xf32>) -> tensor<3x8xf32>
  return %4, %7 : tensor<5x6xf32>, tensor<3x8xf32>
}

// -----

// 7 samples on 2 ranks: rows masked as padding are not sent, and the bias per expert
// is added to the last product on the expert's rank.
dist.mesh @m <["x"=2]>
// CHECK-LABEL: func @samples(
// CHECK:         dist.plan_rows
// CHECK:         dist.all_to_all_v %{{.+}} expect [12, 9] by {"x"} over @m {"x"} purpose expert : tensor<2x12xi64>
// CHECK:         %[[X:.+]] = dist.all_to_all_v %{{.+}} expect [12, 9] by {"x"} over @m {"x"} purpose expert : tensor<2x12x6xf32>
// CHECK:         %[[Y:.+]] = nn.grouped_dot
// CHECK:         %[[ROW:.+]] = nn.gather
// CHECK:         %[[BOTH:.+]] = arith.addf %[[Y]], %[[ROW]]
// CHECK:         dist.all_to_all_v %[[BOTH]] {{.+}} expect [12, 9] by {"x"} home over @m {"x"}
// CHECK:         %[[DY:.+]] = dist.all_to_all_v %{{.+}} : tensor<2x12x8xf32>
// CHECK-NOT:     dist.all_to_all_v
// CHECK:         nn.scatter_add %{{.+}}, %[[DY]]
// CHECK:         nn.grouped_outer %{{.+}}, %[[DY]]
func.func @samples(%x: tensor<4x3x6xf32>, %w: tensor<3x6x8xf32>, %b: tensor<3x8xf32>, %ids: tensor<4x3xi64>, %dy: tensor<4x3x8xf32>)
    -> (tensor<4x3x8xf32>, tensor<4x3x6xf32>, tensor<3x8xf32>, tensor<3x6x8xf32>) {
  %all:2 = dist.all_gather %w, %b dims [0, 0] over @m {"x"} purpose expert : (tensor<3x6x8xf32>, tensor<3x8xf32>) -> (tensor<6x6x8xf32>, tensor<6x8xf32>)
  %seven = arith.constant dense<7> : tensor<i64>
  %offset = dist.tile_offset tile 4 over @m {"x"} : tensor<i64>
  %count = arith.subi %seven, %offset : tensor<i64>
  %sample = nn.iota dim = 0 : tensor<4x3xi64>
  %end = nn.broadcast %count dims = [] : tensor<i64> -> tensor<4x3xi64>
  %valid = arith.cmpi slt, %sample, %end : tensor<4x3xi64>
  %none = arith.constant dense<-1> : tensor<4x3xi64>
  %chosen = arith.select %valid, %ids, %none : tensor<4x3xi1>, tensor<4x3xi64>
  %0 = nn.grouped_dot %x, %all#0, %chosen : tensor<4x3x6xf32>, tensor<6x6x8xf32>, tensor<4x3xi64> -> tensor<4x3x8xf32>
  %1 = nn.gather %all#1, %ids dim = 0 : tensor<6x8xf32>, tensor<4x3xi64> -> tensor<4x3x8xf32>
  %2 = arith.addf %0, %1 : tensor<4x3x8xf32>
  %row = nn.iota dim = 0 : tensor<4x3x8xi64>
  %rows = nn.broadcast %count dims = [] : tensor<i64> -> tensor<4x3x8xi64>
  %real = arith.cmpi slt, %row, %rows : tensor<4x3x8xi64>
  %zeros = arith.constant dense<0.0> : tensor<4x3x8xf32>
  %masked = arith.select %real, %dy, %zeros {dist.pad_mask} : tensor<4x3x8xi1>, tensor<4x3x8xf32>
  %3 = nn.scatter_add %ids, %masked dim = 0 : tensor<4x3xi64>, tensor<4x3x8xf32> -> tensor<6x8xf32>
  %4 = nn.grouped_outer %x, %masked, %ids : tensor<4x3x6xf32>, tensor<4x3x8xf32>, tensor<4x3xi64> -> tensor<6x6x8xf32>
  %5 = nn.grouped_dot %dy, %all#0, %chosen transposed : tensor<4x3x8xf32>, tensor<6x6x8xf32>, tensor<4x3xi64> -> tensor<4x3x6xf32>
  %6 = dist.reduce_scatter sum %3 dims [0] over @m {"x"} purpose gradient : (tensor<6x8xf32>) -> tensor<3x8xf32>
  %7 = dist.reduce_scatter sum %4 dims [0] over @m {"x"} purpose gradient : (tensor<6x6x8xf32>) -> tensor<3x6x8xf32>
  return %2, %5, %6, %7 : tensor<4x3x8xf32>, tensor<4x3x6xf32>, tensor<3x8xf32>, tensor<3x6x8xf32>
}
