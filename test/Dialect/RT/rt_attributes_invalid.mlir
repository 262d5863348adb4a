// RUN: cleave-opt %s -split-input-file -verify-diagnostics

// expected-error @below {{'rt.buffer' is array<i64: 0>; expected #rt.address<arena, offset>}}
func.func @buffer(%x: tensor<4xf32> {rt.buffer = array<i64: 0>}) { return }

// -----

// expected-error @below {{'rt.arenas' is [64, 128]; expected an array<i64>}}
module attributes {rt.arenas = [64, 128]} {}

// -----

// expected-error @below {{'rt.lifetimes' is [{name = "x"}]; expected a list of {first, kind, last, name, offset, size}}}
func.func @lifetimes() attributes {rt.lifetimes = [{name = "x"}]} { return }

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
