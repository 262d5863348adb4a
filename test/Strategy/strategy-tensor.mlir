// RUN: cleave-opt %s --strategy-tensor | FileCheck %s

// The width of the MLP is split. The hidden size, which would make every
// contraction partial, is not. State and gradients are sharded like their parameter.
dist.mesh @mesh <["data"=2, "tensor"=2]>

// CHECK-LABEL: func @loss_grad
// CHECK-SAME:    tensor<6x10xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"tensor"}]>, nn.name = "up"
// CHECK-SAME:    tensor<10xf32> {dist.sharding = #dist.sharding<@mesh, [{"tensor"}]>, nn.name = "bias"
// CHECK-SAME:    tensor<10x6xf32> {dist.sharding = #dist.sharding<@mesh, [{"tensor"}, {}]>, nn.name = "down"
// CHECK-SAME:    tensor<6xf32> {dist.sharding = #dist.sharding<@mesh, [{}]>, nn.name = "shift"
// CHECK-SAME:    tensor<8x6xf32> {nn.name = "x"
func.func @loss_grad(%up: tensor<6x10xf32> {nn.name = "up", nn.role = #nn.role<parameter>},
                     %bias: tensor<10xf32> {nn.name = "bias", nn.role = #nn.role<parameter>},
                     %down: tensor<10x6xf32> {nn.name = "down", nn.role = #nn.role<parameter>},
                     %shift: tensor<6xf32> {nn.name = "shift", nn.role = #nn.role<parameter>},
                     %x: tensor<8x6xf32> {nn.name = "x", nn.role = #nn.role<input>}) -> tensor<8x6xf32> {
  %0 = nn.einsum "bi,ih->bh" %x, %up : tensor<8x6xf32>, tensor<6x10xf32> -> tensor<8x10xf32>
  %1 = nn.broadcast %bias dims = [1] : tensor<10xf32> -> tensor<8x10xf32>
  %2 = arith.addf %0, %1 : tensor<8x10xf32>
  %3 = nn.gelu tanh %2 : tensor<8x10xf32>
  %4 = nn.einsum "bh,hi->bi" %3, %down : tensor<8x10xf32>, tensor<10x6xf32> -> tensor<8x6xf32>
  %5 = nn.broadcast %shift dims = [1] : tensor<6xf32> -> tensor<8x6xf32>
  %6 = arith.addf %4, %5 : tensor<8x6xf32>
  %7 = arith.addf %x, %6 : tensor<8x6xf32>
  return %7 : tensor<8x6xf32>
}

// CHECK-LABEL: func private @update
// CHECK-SAME:    tensor<10x6xf32> {nn.name = "down.m"
// CHECK-LABEL: func @use
// CHECK-SAME:    tensor<10x6xf32> {dist.sharding = #dist.sharding<@mesh, [{"tensor"}, {}]>, nn.name = "down.m"
func.func private @update(tensor<10x6xf32> {nn.name = "down.m", nn.role = #nn.role<state>})
func.func @use(%m: tensor<10x6xf32> {nn.name = "down.m", nn.role = #nn.role<state>}) {
  return
}
