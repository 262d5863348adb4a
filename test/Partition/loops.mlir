// Loops and branches: each carried value has one sharding.
// RUN: cleave-opt %s -split-input-file -dist-propagate -dist-plan-ops -dist-partition -dist-verify-variance | FileCheck %s

dist.mesh @m <["t"=2]>
// The argument is split once and the carried value stays split; each iteration has one all-reduce.
// CHECK-LABEL: func.func @loop
// CHECK-SAME:    %[[X:.*]]: tensor<4x3xf32>
func.func @loop(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@m, [{}, {"t"}]>},
                %w: tensor<6x6xf32> {dist.sharding = #dist.sharding<@m, [{"t"}, {}]>}) -> tensor<4x6xf32> {
  %c0 = arith.constant 0 : index
  %c3 = arith.constant 3 : index
  %c1 = arith.constant 1 : index
  // CHECK:     scf.for %{{.*}} = %{{.*}} to %{{.*}} step %{{.*}} iter_args(%[[H:.*]] = %[[X]]) -> (tensor<4x3xf32>)
  // CHECK:       nn.einsum "bh,hf->bf" %[[H]]
  // CHECK:       dist.reduce_scatter sum
  // CHECK:       scf.yield %{{.*}} : tensor<4x3xf32>
  %0 = scf.for %i = %c0 to %c3 step %c1 iter_args(%h = %x) -> (tensor<4x6xf32>) {
    %1 = nn.einsum "bh,hf->bf" %h, %w : tensor<4x6xf32>, tensor<6x6xf32> -> tensor<4x6xf32>
    %2 = math.tanh %1 : tensor<4x6xf32>
    scf.yield %2 : tensor<4x6xf32>
  }
  return %0 : tensor<4x6xf32>
}

// -----

dist.mesh @m <["t"=2]>
// CHECK-LABEL: func.func @branch
func.func @branch(%c: tensor<i1>, %x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@m, [{"t"}, {}]>}) -> tensor<4x6xf32> {
  // CHECK:     %[[C:.*]] = tensor.extract
  // CHECK:     scf.if %[[C]] -> (tensor<2x6xf32>)
  // CHECK:       scf.yield %{{.*}} : tensor<2x6xf32>
  // CHECK:     else
  // CHECK:       scf.yield %{{.*}} : tensor<2x6xf32>
  %p = tensor.extract %c[] : tensor<i1>
  %0 = scf.if %p -> (tensor<4x6xf32>) {
    %1 = math.tanh %x : tensor<4x6xf32>
    scf.yield %1 : tensor<4x6xf32>
  } else {
    scf.yield %x : tensor<4x6xf32>
  }
  return %0 : tensor<4x6xf32>
}
