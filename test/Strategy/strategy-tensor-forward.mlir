// RUN: cleave-opt %s --strategy-tensor | FileCheck %s

// An inference-only program: the head's outputs are split without a reduction.
// This must not make splitting the MLP's width look worse.
dist.mesh @mesh <["tensor"=2]>

// CHECK-LABEL: func @forward
// CHECK-SAME:    tensor<6x10xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"tensor"}]>, nn.name = "up"
// CHECK-SAME:    tensor<10x6xf32> {dist.sharding = #dist.sharding<@mesh, [{"tensor"}, {}]>, nn.name = "down"
// CHECK-SAME:    tensor<6x12xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"tensor"}]>, nn.name = "head"
func.func @forward(%up: tensor<6x10xf32> {nn.name = "up", nn.role = #nn.role<parameter>},
                   %down: tensor<10x6xf32> {nn.name = "down", nn.role = #nn.role<parameter>},
                   %head: tensor<6x12xf32> {nn.name = "head", nn.role = #nn.role<parameter>},
                   %x: tensor<8x6xf32> {nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<8x12xf32> {nn.name = "logits", nn.role = #nn.role<output>}) {
  %0 = nn.einsum "bi,ih->bh" %x, %up : tensor<8x6xf32>, tensor<6x10xf32> -> tensor<8x10xf32>
  %1 = nn.gelu tanh %0 : tensor<8x10xf32>
  %2 = nn.einsum "bh,hi->bi" %1, %down : tensor<8x10xf32>, tensor<10x6xf32> -> tensor<8x6xf32>
  %3 = arith.addf %x, %2 : tensor<8x6xf32>
  %4 = nn.einsum "bi,iv->bv" %3, %head : tensor<8x6xf32>, tensor<6x12xf32> -> tensor<8x12xf32>
  return %4 : tensor<8x12xf32>
}
