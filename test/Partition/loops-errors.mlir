// RUN: cleave-opt %s -split-input-file -dist-propagate -verify-diagnostics

dist.mesh @m <["t"=2]>
func.func @trips(%n: tensor<i64>, %x: tensor<4xf32>) -> tensor<4xf32> {
  %s = tensor.extract %n[] : tensor<i64>
  %u = arith.index_cast %s : i64 to index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  // expected-error @below {{has bounds that are no constants: ranks could disagree on the number of trips}}
  %0 = scf.for %i = %c0 to %u step %c1 iter_args(%h = %x) -> (tensor<4xf32>) {
    scf.yield %h : tensor<4xf32>
  }
  return %0 : tensor<4xf32>
}

// -----

dist.mesh @m <["t"=2]>
func.func @regions(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  // expected-error @below {{has regions and cannot be partitioned; of operations with regions, scf.for and scf.if can be}}
  %0 = scf.execute_region -> tensor<4xf32> {
    scf.yield %x : tensor<4xf32>
  }
  return %0 : tensor<4xf32>
}

// -----

// An operation without a sharding rule.
dist.mesh @m <["t"=2]>
func.func @unknown(%x: tensor<4xi32>) -> tensor<4xi32> {
  // expected-remark @below {{has no sharding rule: its operands are gathered and it runs whole on every rank}}
  %0, %1 = arith.addui_extended %x, %x : tensor<4xi32>, tensor<4xi1>
  return %0 : tensor<4xi32>
}
