// RUN: cleave-opt %s -split-input-file -dist-combine | FileCheck %s

dist.mesh @m <["d"=2]>
// CHECK-LABEL: func @scatter
// CHECK:         dist.reduce_scatter sum %{{.+}} dims [0] over @m {"d"} purpose gradient : (tensor<4xf32>) -> tensor<2xf32>
// CHECK-NOT:     dist.all_reduce
// CHECK:         return
func.func @scatter(%a: tensor<4xf32>) -> tensor<2xf32> {
  %0 = dist.all_reduce sum %a over @m {"d"} purpose gradient : tensor<4xf32>
  %1 = dist.slice %0 dim 0 over @m {"d"} : tensor<4xf32> -> tensor<2xf32>
  return %1 : tensor<2xf32>
}

// -----

dist.mesh @m <["d"=2]>
// CHECK-LABEL: func @equal
// CHECK:         dist.all_gather
// CHECK-NOT:     dist.all_gather
func.func @equal(%a: tensor<4xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %0 = dist.all_gather %a dims [0] over @m {"d"} purpose activation : (tensor<4xf32>) -> tensor<8xf32>
  %1 = dist.all_gather %a dims [0] over @m {"d"} purpose activation : (tensor<4xf32>) -> tensor<8xf32>
  return %0, %1 : tensor<8xf32>, tensor<8xf32>
}

// -----

// A rank's own tile of a gathered value is the rank's operand of the gather.
dist.mesh @m <["d"=2]>
// CHECK-LABEL: func @gathered_for_nothing
// CHECK-SAME:    (%[[A:.+]]: tensor<4xf32>)
// CHECK-NEXT:    return %[[A]]
func.func @gathered_for_nothing(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = dist.all_gather %a dims [0] over @m {"d"} purpose activation : (tensor<4xf32>) -> tensor<8xf32>
  %1 = dist.slice %0 dim 0 over @m {"d"} : tensor<8xf32> -> tensor<4xf32>
  return %1 : tensor<4xf32>
}

// -----

// A slice along another dimension is a different tile.
dist.mesh @m <["d"=2]>
// CHECK-LABEL: func @other_dimension
// CHECK:         dist.all_gather
// CHECK:         dist.slice
func.func @other_dimension(%a: tensor<4x4xf32>) -> tensor<8x2xf32> {
  %0 = dist.all_gather %a dims [0] over @m {"d"} purpose activation : (tensor<4x4xf32>) -> tensor<8x4xf32>
  %1 = dist.slice %0 dim 1 over @m {"d"} : tensor<8x4xf32> -> tensor<8x2xf32>
  return %1 : tensor<8x2xf32>
}

// -----

// Slicing an all-reduce result and gathering the tiles gives the same result
// again. For a value that may differ between ranks this does not hold.
dist.mesh @m <["d"=2]>
// CHECK-LABEL: func @cut_and_gathered
// CHECK:         %[[SUM:.+]] = dist.all_reduce
// CHECK-NOT:     dist.slice %[[SUM]]
// CHECK:         %[[TILE:.+]] = dist.slice
// CHECK-NEXT:    %[[OTHER:.+]] = dist.all_gather %[[TILE]]
// CHECK-NEXT:    return %[[SUM]], %[[OTHER]]
func.func @cut_and_gathered(%a: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = dist.all_reduce sum %a over @m {"d"} purpose activation : tensor<4xf32>
  %1 = dist.slice %0 dim 0 over @m {"d"} : tensor<4xf32> -> tensor<2xf32>
  %2 = dist.all_gather %1 dims [0] over @m {"d"} purpose activation : (tensor<2xf32>) -> tensor<4xf32>
  %3 = dist.slice %a dim 0 over @m {"d"} : tensor<4xf32> -> tensor<2xf32>
  %4 = dist.all_gather %3 dims [0] over @m {"d"} purpose activation : (tensor<2xf32>) -> tensor<4xf32>
  return %2, %4 : tensor<4xf32>, tensor<4xf32>
}

// -----

// The same in loops and branches. A tile sliced in a loop from a value that was
// gathered before the loop is the gather's operand.
dist.mesh @m <["d"=2]>
// CHECK-LABEL: func @regions
// CHECK-SAME:    (%[[A:.+]]: tensor<4xf32>, %{{.+}}: i1)
// CHECK-NOT:     dist.all_gather
// CHECK:         scf.for {{.*}} iter_args(%[[T:.+]] = %[[A]])
// CHECK:           %[[SUM:.+]] = arith.addf %[[T]], %[[A]]
// CHECK:           dist.reduce_scatter sum
// CHECK-NOT:       dist.slice
// CHECK:           scf.yield
// CHECK:         scf.if
// CHECK:           dist.all_gather
// CHECK-NOT:       dist.all_gather
// CHECK:         else
// CHECK:           dist.all_gather
// CHECK-NOT:       dist.all_gather
func.func @regions(%a: tensor<4xf32>, %p: i1) -> tensor<8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %g = dist.all_gather %a dims [0] over @m {"d"} purpose activation : (tensor<4xf32>) -> tensor<8xf32>
  %0 = scf.for %i = %c0 to %c3 step %c1 iter_args(%t = %a) -> (tensor<4xf32>) {
    %1 = dist.slice %g dim 0 over @m {"d"} : tensor<8xf32> -> tensor<4xf32>
    %2 = arith.addf %t, %1 : tensor<4xf32>
    %3 = tensor.concat dim(0) %2, %2 : (tensor<4xf32>, tensor<4xf32>) -> tensor<8xf32>
    %4 = dist.all_reduce sum %3 over @m {"d"} purpose activation : tensor<8xf32>
    %5 = dist.slice %4 dim 0 over @m {"d"} : tensor<8xf32> -> tensor<4xf32>
    scf.yield %5 : tensor<4xf32>
  }
  %6 = scf.if %p -> (tensor<8xf32>) {
    %7 = dist.all_gather %0 dims [0] over @m {"d"} purpose activation : (tensor<4xf32>) -> tensor<8xf32>
    %8 = dist.all_gather %0 dims [0] over @m {"d"} purpose activation : (tensor<4xf32>) -> tensor<8xf32>
    %9 = arith.addf %7, %8 : tensor<8xf32>
    scf.yield %9 : tensor<8xf32>
  } else {
    %7 = dist.all_gather %0 dims [0] over @m {"d"} purpose activation : (tensor<4xf32>) -> tensor<8xf32>
    scf.yield %7 : tensor<8xf32>
  }
  return %6 : tensor<8xf32>
}
