// RUN: cleave-opt %s -split-input-file -verify-diagnostics

// expected-error @below {{argument 0 of @buffer: 'rt.buffer' is array<i64: 0>; expected #rt.address<arena, offset>}}
func.func @buffer(%x: tensor<4xf32> {rt.buffer = array<i64: 0>}) { return }

// -----

// expected-error @below {{'rt.arenas' is [64, 128]; expected an array<i64> without negative numbers, the sizes of the arenas}}
module attributes {rt.arenas = [64, 128]} {}

// -----

// expected-error @below {{'rt.lifetimes' is [{name = "x"}]; expected a list of #rt.lifetime<name = ..., kind = ..., first = ..., last = ..., offset = ..., size = ...>}}
func.func @lifetimes() attributes {rt.lifetimes = [{name = "x"}]} { return }

// -----

// expected-error @below {{lifetime of "x": kind is "value", expected "activation" or "workspace"}}
func.func @kind() attributes {rt.lifetimes = [#rt.lifetime<name = "x", kind = "value", first = 0, last = 1, offset = 0, size = 64>]} { return }

// -----

// expected-error @below {{lifetime of "x": live from command 2 to 1, expected 0 <= first <= last}}
func.func @order() attributes {rt.lifetimes = [#rt.lifetime<name = "x", kind = "activation", first = 2, last = 1, offset = 0, size = 64>]} { return }

// -----

// expected-error @below {{lifetime of "x": offset -64, size 64; expected offset >= 0, size > 0 and an end that fits into 64 bits}}
func.func @size() attributes {rt.lifetimes = [#rt.lifetime<name = "x", kind = "activation", first = 0, last = 1, offset = -64, size = 64>]} { return }

// -----

// expected-error @below {{'rt.stages' is [{arenas = array<i64: 64, 0>, slots = []}]; expected a list of #rt.stage<arenas = ..., slots = ...>}}
module attributes {rt.stages = [{arenas = array<i64: 64, 0>, slots = []}]} {}

// -----

// expected-error @below {{a stage has 2 arenas and 1 slots, expected 2 arenas more than slots}}
module attributes {rt.stages = [#rt.stage<arenas = [64, 0], slots = ["F:B"]>]} {}

// -----

func.func @buffers(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{'rt.buffers' has 2 addresses; expected one for each of 1 results}}
  %0 = arith.negf %x {rt.buffers = [#rt.address<0, 0>, #rt.address<0, 64>]} : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// expected-error @below {{unknown attribute 'rt.arena' on an operation; expected one of rt.buffers,}}
module attributes {rt.arena = array<i64: 64>} {}

// -----

// expected-error @below {{#rt.address has arena -1 and offset 0; expected no negative number}}
func.func @negative(%x: tensor<4xf32> {rt.buffer = #rt.address<-1, 0>}) { return }

// -----

// expected-error @below {{result 1 of @result: 'rt.buffer' is 3 : i64; expected #rt.address<arena, offset>}}
func.func private @result() -> (tensor<4xf32>, tensor<4xf32> {rt.buffer = 3 : i64})

// -----

// expected-error @below {{'rt.arenas' is array<i64: -1>; expected an array<i64> without negative numbers}}
module attributes {rt.arenas = array<i64: -1>} {}

// -----

// expected-error @below {{arenas of a stage: [64, -1], expected no size below 0}}
module attributes {rt.stages = [#rt.stage<arenas = [64, -1], slots = []>]} {}

// -----

// expected-error @below {{'rt.overlap' is [1.000000e+00, 2.000000e+00, -3.000000e+00]; expected three floats, finite and at least 0}}
func.func @overlap() attributes {rt.overlap = [1.0, 2.0, -3.0]} { return }

// -----

func.func @beyond(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{'rt.beyond' has 2 numbers; expected at most one for each of 1 operands}}
  %0 = arith.negf %x {rt.beyond = array<i64: 7, 7>} : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// expected-error @below {{lifetime of "x": offset 9223372036854775807, size 64; expected offset >= 0, size > 0 and an end that fits into 64 bits}}
func.func @end() attributes {rt.lifetimes = [#rt.lifetime<name = "x", kind = "activation", first = 0, last = 1, offset = 9223372036854775807, size = 64>]} { return }
