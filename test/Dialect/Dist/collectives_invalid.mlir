// RUN: cleave-opt %s -split-input-file -verify-diagnostics

// A code such as C1 names the documented verifier rule that the case below violates.

// C1
dist.mesh @m <["x"=4]>
func.func @axis(%a: tensor<8xf32>) {
  // expected-error @below {{'dist.all_reduce' op axis "y" is not one of mesh}}
  %0 = dist.all_reduce sum %a over @m {"y"} purpose loss : tensor<8xf32>
  return
}

// -----

// C1
func.func @mesh(%a: tensor<8xf32>) {
  // expected-error @below {{'dist.all_reduce' op there is no mesh @m}}
  %0 = dist.all_reduce sum %a over @m {"y"} purpose loss : tensor<8xf32>
  return
}

// -----

// C2
dist.mesh @m <["x"=4]>
func.func @none() {
  // expected-error @below {{has 0 operands and 0 results, expected at least one and as many of both}}
  "dist.all_reduce"() {kind = #dist<reduce_kind sum>, mesh = @m, axes = #dist.axes<{"x"}>, purpose = #dist<purpose loss>} : () -> ()
  return
}

// -----

// AR1
dist.mesh @m <["x"=4]>
func.func @type(%a: tensor<8xf32>) {
  // expected-error @below {{type 'tensor<2xf32>' of result 0 does not follow from the operand; expected 'tensor<8xf32>'}}
  %0 = "dist.all_reduce"(%a) {kind = #dist<reduce_kind sum>, mesh = @m, axes = #dist.axes<{"x"}>, purpose = #dist<purpose loss>} : (tensor<8xf32>) -> tensor<2xf32>
  return
}

// -----

// AG1
dist.mesh @m <["x"=4]>
func.func @dims(%a: tensor<8xf32>) {
  // expected-error @below {{dims has dimension 1, out of range for a rank-1 operand}}
  %0 = dist.all_gather %a dims [1] over @m {"x"} purpose loss : (tensor<8xf32>) -> tensor<32xf32>
  return
}

// -----

// AG2
dist.mesh @m <["x"=4]>
func.func @gathered(%a: tensor<8xf32>) {
  // expected-error @below {{type 'tensor<30xf32>' of result 0 does not follow from the operand; expected 'tensor<32xf32>'}}
  %0 = dist.all_gather %a dims [0] over @m {"x"} purpose loss : (tensor<8xf32>) -> tensor<30xf32>
  return
}

// -----

// RS1
dist.mesh @m <["x"=4]>
func.func @dims_count(%a: tensor<8xf32>) {
  // expected-error @below {{dims has 2 entries, expected 1, one for each operand}}
  %0 = dist.reduce_scatter sum %a dims [0, 0] over @m {"x"} purpose loss : (tensor<8xf32>) -> tensor<2xf32>
  return
}

// -----

// RS2
dist.mesh @m <["x"=4]>
func.func @uneven(%a: tensor<10xf32>) {
  // expected-error @below {{dimension 0 of size 10 does not divide by the group of 4; pad it first}}
  %0 = dist.reduce_scatter sum %a dims [0] over @m {"x"} purpose loss : (tensor<10xf32>) -> tensor<3xf32>
  return
}

// -----

// AA1
dist.mesh @m <["x"=4]>
func.func @same_dim(%a: tensor<8x4xf32>) {
  // expected-error @below {{splits and concatenates dimension 0 of operand 0, expected two different ones}}
  %0 = dist.all_to_all %a split [0] concat [0] over @m {"x"} purpose loss : (tensor<8x4xf32>) -> tensor<8x4xf32>
  return
}

// -----

// AA2
dist.mesh @m <["x"=4]>
func.func @exchanged(%a: tensor<8x4xf32>) {
  // expected-error @below {{type 'tensor<8x4xf32>' of result 0 does not follow from the operand; expected 'tensor<2x16xf32>'}}
  %0 = dist.all_to_all %a split [0] concat [1] over @m {"x"} purpose loss : (tensor<8x4xf32>) -> tensor<8x4xf32>
  return
}

// -----

// CP2
dist.mesh @m <["x"=4]>
func.func @pairs(%a: tensor<8xf32>) {
  // expected-error @below {{pairs lists target 1 twice}}
  %0 = dist.collective_permute %a pairs [0, 1, 2, 1] over @m {"x"} purpose loss : tensor<8xf32>
  return
}

// -----

// CP2
dist.mesh @m <["x"=4]>
func.func @index(%a: tensor<8xf32>) {
  // expected-error @below {{pairs has 4, expected an index below the group's size 4}}
  %0 = dist.collective_permute %a pairs [0, 4] over @m {"x"} purpose loss : tensor<8xf32>
  return
}

// -----

// SL1
dist.mesh @m <["x"=4]>
func.func @slice_dim(%a: tensor<8xf32>) {
  // expected-error @below {{'dist.slice' op dim 1 is out of range for a rank-1 operand}}
  %0 = dist.slice %a dim 1 over @m {"x"} : tensor<8xf32> -> tensor<2xf32>
  return
}

// -----

// SL2
dist.mesh @m <["x"=4]>
func.func @slice_tile(%a: tensor<10xf32>) {
  // expected-error @below {{'dist.slice' op result type 'tensor<2xf32>' does not follow from the operand; expected 'tensor<3xf32>'}}
  %0 = dist.slice %a dim 0 over @m {"x"} : tensor<10xf32> -> tensor<2xf32>
  return
}

// -----

// TO1
dist.mesh @m <["x"=4]>
func.func @tile() {
  // expected-error @below {{'dist.tile_offset' op tile 0 must be positive}}
  %0 = dist.tile_offset tile 0 over @m {"x"} : tensor<i64>
  return
}

// -----

// W1
dist.mesh @m <["x"=4]>
func.func @window_tile(%a: tensor<2x6xf32>) {
  // expected-error @below {{dimension 0 of the operand has 2 elements, expected a tile of 10 on 4 ranks}}
  %0 = dist.window %a dim 0 size 10 base 0 step 3 stride 1 whole 10 over @m {"x"} purpose activation : (tensor<2x6xf32>) -> tensor<3x6xf32>
  return
}

// -----

// W2
dist.mesh @m <["x"=4]>
func.func @window_stride(%a: tensor<3x6xf32>) {
  // expected-error @below {{has stride 0; a window needs another one}}
  %0 = dist.window %a dim 0 size 10 base 0 step 3 stride 0 whole 10 over @m {"x"} purpose activation : (tensor<3x6xf32>) -> tensor<3x6xf32>
  return
}

// -----

// W3
dist.mesh @m <["x"=4]>
func.func @window_shape(%a: tensor<3x6xf32>) {
  // expected-error @below {{type 'tensor<3x5xf32>' of result 0 does not follow from the operand; expected 'tensor<3x6xf32>'}}
  %0 = dist.window %a dim 0 size 10 base 0 step 3 stride 1 whole 10 over @m {"x"} purpose activation : (tensor<3x6xf32>) -> tensor<3x5xf32>
  return
}

// -----

// AV1
dist.mesh @m <["x"=4]>
func.func @blocks(%x: tensor<3x6x5xf32>, %n: tensor<4xi64>) {
  // expected-error @below {{'dist.all_to_all_v' op has operand 'tensor<3x6x5xf32>', expected one of 4 blocks of rows: [4, rows, ...]}}
  %0 = dist.all_to_all_v %x sent %n received %n expect [5] over @m {"x"} purpose expert : tensor<3x6x5xf32> counts tensor<4xi64>
  return
}

// -----

// AV2
dist.mesh @m <["x"=4]>
func.func @counts(%x: tensor<4x6x5xf32>, %n: tensor<2xi64>) {
  // expected-error @below {{'dist.all_to_all_v' op counts have type 'tensor<2xi64>', expected one number for each of 4 ranks}}
  %0 = dist.all_to_all_v %x sent %n received %n expect [5] over @m {"x"} purpose expert : tensor<4x6x5xf32> counts tensor<2xi64>
  return
}

// -----

// PR2
func.func @places(%ids: tensor<3x2xi64>) {
  // expected-error @below {{'dist.plan_rows' op sources has sizes [1, 4, 5], expected [rounds, ranks, places] with a place in a round for each of 6 rows}}
  %0, %1, %2, %3 = dist.plan_rows %ids tile 3 : tensor<3x2xi64> -> tensor<1x4x5xi64>, tensor<6xi64>, tensor<1x4x5xi64>, tensor<4x1xi64>
  return
}

// -----

// PR2
func.func @numbers(%ids: tensor<3x2xi64>) {
  // expected-error @below {{'dist.plan_rows' op counts has sizes [3, 2], expected [4, 2]}}
  %0, %1, %2, %3 = dist.plan_rows %ids tile 3 : tensor<3x2xi64> -> tensor<2x4x3xi64>, tensor<6xi64>, tensor<2x4x3xi64>, tensor<3x2xi64>
  return
}

// -----

// AV3
dist.mesh @m <["x"=4]>
func.func @expected(%x: tensor<4x6x5xf32>, %n: tensor<4xi64>) {
  // expected-error @below {{'dist.all_to_all_v' op expects 25 rows, but has 24}}
  %0 = dist.all_to_all_v %x sent %n received %n expect [25] over @m {"x"} purpose expert : tensor<4x6x5xf32> counts tensor<4xi64>
  return
}

// -----

// AV3
dist.mesh @m <["x"=4, "y"=2]>
func.func @positions(%x: tensor<4x6x5xf32>, %n: tensor<4xi64>) {
  // expected-error @below {{'dist.all_to_all_v' op has 4 numbers of expected rows, expected 2}}
  %0 = dist.all_to_all_v %x sent %n received %n expect [6, 6, 6, 6] by {"y"} home over @m {"x"} purpose expert : tensor<4x6x5xf32> counts tensor<4xi64>
  return
}

// -----

// SR2
func.func @sorted(%ids: tensor<3x2xi64>) {
  // expected-error @below {{'dist.sort_rows' op order has sizes [5], expected [6]}}
  %0, %1, %2 = dist.sort_rows %ids groups 3 : tensor<3x2xi64> -> tensor<5xi64>, tensor<3x2xi64>, tensor<6xi64>
  return
}

// -----

// SR2
func.func @places(%ids: tensor<3x2xi64>) {
  // expected-error @below {{'dist.sort_rows' op places has sizes [6], expected [3, 2]}}
  %0, %1, %2 = dist.sort_rows %ids groups 3 : tensor<3x2xi64> -> tensor<6xi64>, tensor<6xi64>, tensor<6xi64>
  return
}
