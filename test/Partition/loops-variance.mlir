// RUN: cleave-opt %s -split-input-file -dist-verify-variance -verify-diagnostics

// Ranks that take another branch never reach the all-reduce.
dist.mesh @m <["t"=2]>
func.func @condition(%c: tensor<2xi1> {dist.sharding = #dist.sharding<@m, [{"t"}]>}, %x: tensor<4xf32>) -> tensor<4xf32> {
  %mine = nn.reduce max %c dims = [0] : tensor<2xi1> -> tensor<i1>
  %all = dist.all_reduce max %mine over @m {"t"} purpose activation : tensor<i1>
  %place = dist.axis_index over @m {"t"} : tensor<i64>
  %zero = arith.constant dense<0> : tensor<i64>
  %differs = arith.cmpi eq, %place, %zero : tensor<i64>
  %p = tensor.extract %differs[] : tensor<i1>
  %0 = scf.if %p -> (tensor<4xf32>) {
    // expected-error @below {{is under a condition that differs between the ranks of its group}}
    %1 = dist.collective_permute %x pairs [0, 1, 1, 0] over @m {"t"} purpose activation : tensor<4xf32>
    scf.yield %1 : tensor<4xf32>
  } else {
    scf.yield %x : tensor<4xf32>
  }
  return %0 : tensor<4xf32>
}

// -----

// The carried value is complete on entry, but a partial sum at the end of an iteration.
dist.mesh @m <["t"=2]>
func.func @carried(%x: tensor<4x2xf32> {dist.sharding = #dist.sharding<@m, [{}, {"t"}]>}, %s: tensor<4xf32>) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c3 = arith.constant 3 : index
  %c1 = arith.constant 1 : index
  // expected-error @below {{value 0, where it is yielded, is partial (sum) over axis "t", its sharding says invariant}}
  %0 = scf.for %i = %c0 to %c3 step %c1 iter_args(%h = %s) -> (tensor<4xf32>) {
    %1 = nn.reduce sum %x dims = [1] : tensor<4x2xf32> -> tensor<4xf32>
    scf.yield %1 : tensor<4xf32>
  }
  return %0 : tensor<4xf32>
}

// -----

// The result of a branch differs between the ranks for which the condition differs.
dist.mesh @m <["t"=2]>
func.func @chosen(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %place = dist.axis_index over @m {"t"} : tensor<i64>
  %zero = arith.constant dense<0> : tensor<i64>
  %differs = arith.cmpi eq, %place, %zero : tensor<i64>
  %p = tensor.extract %differs[] : tensor<i1>
  // expected-error @below {{result 0 is invariant over axis "t" as its sharding says, but the condition differs over it}}
  %0 = scf.if %p -> (tensor<4xf32>) {
    scf.yield %x : tensor<4xf32>
  } else {
    scf.yield %y : tensor<4xf32>
  }
  return %0 : tensor<4xf32>
}
