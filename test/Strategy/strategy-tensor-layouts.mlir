// RUN: cleave-opt %s --split-input-file --strategy-tensor="axis=tensor sequence=true" | FileCheck %s --check-prefix=SP
// RUN: cleave-opt %s --split-input-file --strategy-tensor="layout=2d axes=x,tensor" | FileCheck %s --check-prefix=D2
// RUN: cleave-opt %s --split-input-file --strategy-tensor="layout=3d axes=z,x,tensor" | FileCheck %s --check-prefix=D3

// An MLP between residual values: inputs of products are gathered, and results
// get the layout of the residual stream.
dist.mesh @mesh <["z"=2, "x"=2, "tensor"=2]>

// SP-LABEL: func @loss_grad
// SP-SAME:    %[[UP:[^:]*]]: tensor<6x10xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"tensor"}]>, nn.name = "up"
// SP-SAME:    %[[DOWN:[^:]*]]: tensor<10x6xf32> {dist.sharding = #dist.sharding<@mesh, [{"tensor"}, {}]>, nn.name = "down"
// SP:         %[[GATHERED:.*]] = dist.constrain %{{.*}} <@mesh, [{}, {}, {}]> : tensor<4x8x6xf32>
// SP:         %[[W:.*]] = dist.constrain %[[UP]] <@mesh, [{}, {"tensor"}]>
// SP:         nn.einsum "bsi,ih->bsh" %[[GATHERED]], %[[W]]
// SP:         %[[Y:.*]] = nn.einsum "bsh,hi->bsi"
// SP-NEXT:    %[[PARTIAL:.*]] = dist.constrain %[[Y]] <@mesh, [{}, {}, {}], partial = sum{"tensor"}>
// SP-NEXT:    %[[SUM:.*]] = arith.addf %{{.*}}, %[[PARTIAL]]
// SP-NEXT:    dist.constrain %[[SUM]] <@mesh, [{}, {"tensor"}, {}]>

// D2-LABEL: func @loss_grad
// D2-SAME:    %[[UP:[^:]*]]: tensor<6x10xf32> {dist.sharding = #dist.sharding<@mesh, [{"x"}, {"tensor"}]>, nn.name = "up"
// D2-SAME:    %[[DOWN:[^:]*]]: tensor<10x6xf32> {dist.sharding = #dist.sharding<@mesh, [{"x"}, {"tensor"}]>, nn.name = "down"
// D2:         %[[GATHERED:.*]] = dist.constrain %{{.*}} <@mesh, [{"x"}, {}, {}]> : tensor<4x8x6xf32>
// D2:         %[[W:.*]] = dist.constrain %[[UP]] <@mesh, [{}, {"tensor"}]>
// D2:         %[[Y:.*]] = nn.einsum "bsi,ih->bsh" %[[GATHERED]], %[[W]]
// D2:         dist.constrain %[[Y]] <@mesh, [{"x"}, {}, {"tensor"}]>

// D3-LABEL: func @loss_grad
// D3-SAME:    %[[UP:[^:]*]]: tensor<6x10xf32> {dist.sharding = #dist.sharding<@mesh, [{"tensor", "z"}, {"x"}]>, nn.name = "up"
// D3-SAME:    %[[DOWN:[^:]*]]: tensor<10x6xf32> {dist.sharding = #dist.sharding<@mesh, [{"x", "z"}, {"tensor"}]>, nn.name = "down"
// D3:         %[[GATHERED:.*]] = dist.constrain %{{.*}} <@mesh, [{"z"}, {}, {"tensor"}]> : tensor<4x8x6xf32>
// D3:         %[[W:.*]] = dist.constrain %[[UP]] <@mesh, [{"tensor"}, {"x"}]>
// D3:         %[[Y:.*]] = nn.einsum "bsi,ih->bsh" %[[GATHERED]], %[[W]]
// D3:         %[[PARTIAL:.*]] = dist.constrain %[[Y]] <@mesh, [{"z"}, {}, {"x"}], partial = sum{"tensor"}>
// D3:         dist.constrain %[[PARTIAL]] <@mesh, [{"z", "tensor"}, {}, {"x"}]>
func.func @loss_grad(%up: tensor<6x10xf32> {nn.name = "up", nn.role = #nn.role<parameter>},
                     %down: tensor<10x6xf32> {nn.name = "down", nn.role = #nn.role<parameter>},
                     %x: tensor<4x8x6xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>}) -> tensor<4x8x6xf32> {
  %0 = nn.einsum "bsi,ih->bsh" %x, %up : tensor<4x8x6xf32>, tensor<6x10xf32> -> tensor<4x8x10xf32>
  %1 = nn.gelu tanh %0 : tensor<4x8x10xf32>
  %2 = nn.einsum "bsh,hi->bsi" %1, %down : tensor<4x8x10xf32>, tensor<10x6xf32> -> tensor<4x8x6xf32>
  %3 = arith.addf %x, %2 : tensor<4x8x6xf32>
  return %3 : tensor<4x8x6xf32>
}
