// RUN: cleave-opt %s -split-input-file -verify-diagnostics

// A code such as C1 names the documented verifier rule that the case below violates.

// M1
// expected-error @below {{axis "x" is declared twice}}
dist.mesh @m <["x"=4, "x"=2]>

// -----

// M1
// expected-error @below {{axis "x" has size 0, expected at least 1}}
dist.mesh @m <["x"=0]>

// -----

// M2
// expected-error @below {{has 1 link classes, expected 2, one for each axis}}
dist.mesh @m <["x"=4, "y"=2]> links ["intra"]

// -----

// M3
// expected-error @below {{has 3 ranks of axis 'x' on a node, expected a divisor of 4}}
dist.mesh @m <["x"=4, "y"=2]> links ["inter", "intra"] within [3, 2]

// -----

// M3
// expected-error @below {{has 1 numbers in within, expected 2, one for each axis}}
dist.mesh @m <["x"=4, "y"=2]> links ["inter", "intra"] within [2]

// -----

// S1
dist.mesh @m <["x"=4]>
func.func @twice(%a: tensor<8x8xf32>) {
  // expected-error @below {{axis "x" is used twice, by dimension 0 and by dimension 1}}
  %0 = dist.constrain %a <@m, [{"x"}, {"x"}]> : tensor<8x8xf32>
  return
}

// -----

// S1
dist.mesh @m <["x"=4]>
func.func @overlap(%a: tensor<8x8xf32>) {
  // expected-error @below {{axis "x" is used twice, by dimension 0 and by dimension 1}}
  %0 = dist.constrain %a <@m, [{"x":(1)4}, {"x":(2)2}]> : tensor<8x8xf32>
  return
}

// -----

// S2
dist.mesh @m <["x"=4]>
// expected-error @below {{argument 0 of @rank: dist.sharding: sharding #dist.sharding<@m, [{"x"}]> has 1 dimensions, expected 2 for 'tensor<8x8xf32>'}}
func.func @rank(%a: tensor<8x8xf32> {dist.sharding = #dist.sharding<@m, [{"x"}]>}) {
  return
}

// -----

// S3
dist.mesh @m <["x"=4]>
func.func @unknown(%a: tensor<8x8xf32>) {
  // expected-error @below {{axis "y" is not one of mesh #dist.mesh<["x"=4]>}}
  %0 = dist.constrain %a <@m, [{"y"}, {}]> : tensor<8x8xf32>
  return
}

// -----

// S4
dist.mesh @m <["x"=4]>
func.func @sub_axis(%a: tensor<8x8xf32>) {
  // expected-error @below {{sub-axis "x":(2)3 does not divide the axis of size 4}}
  %0 = dist.constrain %a <@m, [{"x":(2)3}, {}]> : tensor<8x8xf32>
  return
}

// -----

func.func @no_mesh(%a: tensor<8x8xf32>) {
  // expected-error @below {{there is no mesh @m}}
  %0 = dist.constrain %a <@m, [{"x"}, {}]> : tensor<8x8xf32>
  return
}

// -----

dist.mesh @m <["x"=4]>
func.func @order(%a: tensor<8xf32>) {
  // expected-error @below {{expected partial, replicated or priority, each once and in this order}}
  %0 = dist.constrain %a <@m, [{}], priority = 1, partial = sum{"x"}> : tensor<8xf32>
  return
}

// -----

dist.mesh @m <["x"=4]>
func.func @per_result(%a: tensor<8xf32>) {
  // expected-error @below {{'dist.sharding' is #dist.sharding<@m, [{"x"}]>; expected a list of #dist.sharding<...>, one for each result}}
  %0 = arith.negf %a {dist.sharding = #dist.sharding<@m, [{"x"}]>} : tensor<8xf32>
  return
}

// -----

dist.mesh @m <["x"=4]>
func.func @empty_sub_axis(%a: tensor<8xf32>) {
  // expected-error @below {{sub-axis "x":(1)0 must have a positive number of blocks before it and a positive size}}
  %0 = dist.constrain %a <@m, [{"x":(1)0}]> : tensor<8xf32>
  return
}

// -----

dist.mesh @m <["x"=4]>
func.func @overflow(%a: tensor<8xf32>) {
  // expected-error @below {{sub-axis "x":(4611686018427387904)4 must have a positive number of blocks before it and a positive size, and at most 2147483647 ranks up to its end}}
  %0 = dist.constrain %a <@m, [{"x":(4611686018427387904)4}]> : tensor<8xf32>
  return
}

// -----

// M1
// expected-error @below {{axis "y" of size 4611686018427387904 makes more than 2147483647 ranks}}
dist.mesh @m <["x"=4, "y"=4611686018427387904]>

// -----

func.func @plan(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{'dist.plan' is {}; expected #dist.plan<carry = ..., factors = [...]>}}
  %0 = arith.negf %x {dist.plan = {}} : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @plan_factors(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{#dist.plan has factors = ["x"]; expected a list of #dist.axes}}
  %0 = arith.negf %x {dist.plan = #dist.plan<carry = <{}>, factors = ["x"]>} : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// expected-error @below {{argument 0 of @global_type: dist.global_type: expected a tensor type of the rank and elements of 'tensor<4xf32>', found tensor<2x4xf32>}}
func.func @global_type(%x: tensor<4xf32> {dist.global_type = tensor<2x4xf32>}) { return }

// -----

func.func @pad_mask(%c: tensor<4xi1>, %x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{'dist.pad_mask' is 1 : i64; expected a unit}}
  %0 = arith.select %c, %x, %x {dist.pad_mask = 1 : i64} : tensor<4xi1>, tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @tile_padding(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{"dist.tile_padding": tiles are padded at their ends; expected nn.pad with low = 0}}
  %0 = arith.negf %x {dist.tile_padding} : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @padding(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{'dist.padding' is -8 : i64; expected an i64, at least 1, a number of bytes}}
  %0 = arith.negf %x {dist.padding = -8 : i64} : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @unknown_of_operation(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{unknown attribute 'dist.foo' on an operation; expected one of dist.sharding, dist.plan, dist.padding, dist.pad_mask, dist.tile_padding}}
  %0 = arith.negf %x {dist.foo} : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// expected-error @below {{argument 1 of @unknown_of_argument: unknown attribute 'dist.foo' on an argument; expected one of dist.sharding, dist.global_type}}
func.func @unknown_of_argument(%x: tensor<4xf32>, %y: tensor<4xf32> {dist.foo}) { return }

// -----

// expected-error @below {{result 0 of @result_type: dist.global_type: expected a tensor type of the rank and elements of 'tensor<4xf32>', found tensor<4xf64>}}
func.func private @result_type() -> (tensor<4xf32> {dist.global_type = tensor<4xf64>})
