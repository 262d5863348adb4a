// RUN: cleave-opt %s --strategy-data=zero=1 | FileCheck %s --check-prefix=ZERO
// RUN: cleave-opt %s --strategy-data=zero=2 | FileCheck %s --check-prefix=TWO
// RUN: cleave-opt %s --strategy-data="zero=2 zero2-reduce=per_microbatch" | FileCheck %s --check-prefix=EACH
// RUN: cleave-opt %s --strategy-data=zero=3 | FileCheck %s --check-prefix=THREE
// RUN: cleave-opt %s --strategy-data="zero=3 batch-axes=outer,data replicate=outer" | FileCheck %s --check-prefix=HYBRID
// RUN: not cleave-opt %s --strategy-data="zero=4" 2>&1 | FileCheck %s --check-prefix=FOUR
// RUN: not cleave-opt %s --strategy-data="replicate=data" 2>&1 | FileCheck %s --check-prefix=SAME
// RUN: not cleave-opt %s --strategy-data="replicate=node" 2>&1 | FileCheck %s --check-prefix=NODE
// FOUR: error: zero is 4; expected 0, 1, 2 or 3
// SAME: error: {{.*}}axis 'data' cannot both shard and replicate
// NODE: error: {{.*}}axis 'node' is to replicate, but splits neither samples nor positions
// RUN: not cleave-opt %s --strategy-data="batch-axes=data sequence-axes=data" 2>&1 | FileCheck %s --check-prefix=TWICE
// TWICE: error: {{.*}}axis 'data' cannot split the boundary twice
// RUN: not cleave-opt %s --strategy-data="batch-axes=data,node" 2>&1 | FileCheck %s --check-prefix=AXIS
// AXIS: error: {{.*}}has no axis 'node' to split over

// With ZeRO 3 parameters are sharded like the state. With ZeRO 2 gradients are, unless they
// accumulate unsharded over microbatches. Hybrid sharding splits samples by both axes.
dist.mesh @mesh <["outer"=2, "data"=2]>

// ZERO-LABEL: func @loss_grad
// ZERO-SAME:    partial = sum{"data"}>, nn.name = "w", nn.role = #nn.role<gradient>}
// ZERO-NOT:     dist.constrain
// TWO-LABEL: func @loss_grad
// TWO-NOT:     dist.constrain
// EACH-LABEL: func @loss_grad
// EACH-SAME:    %{{.+}}: tensor<6x4xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, nn.name = "w", nn.role = #nn.role<parameter>}
// EACH-SAME:    %[[SUM:[a-z0-9]+]]: tensor<6x4xf32> {dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>, nn.name = "w", nn.role = #nn.role<gradient>}
// EACH:         %[[G:.+]] = nn.einsum "bh,bf->hf"
// EACH-NEXT:    %[[ALL:.+]] = dist.constrain %[[G]] <@mesh, [{}, {}], partial = sum{"data"}>
// EACH-NEXT:    %[[TILE:.+]] = dist.constrain %[[ALL]] <@mesh, [{"data"}, {}]> purpose gradient
// EACH:         arith.addf %[[SUM]], %[[TILE]]
// THREE-LABEL: func @loss_grad
// THREE-SAME:    %[[W:.+]]: tensor<6x4xf32> {dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>, nn.name = "w", nn.role = #nn.role<parameter>}
// THREE:         %[[WHOLE:.+]] = dist.constrain %[[W]] <@mesh, [{}, {}]>
// THREE-NEXT:    nn.einsum "bh,hf->bf" %{{.+}}, %[[WHOLE]]
// THREE:         dist.constrain %{{.+}} <@mesh, [{"data"}, {}]> purpose gradient
// HYBRID-LABEL: func @loss_grad
// HYBRID-SAME:    tensor<6x4xf32> {dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>, nn.name = "w", nn.role = #nn.role<parameter>}
// HYBRID-SAME:    tensor<8x6xf32> {dist.sharding = #dist.sharding<@mesh, [{"outer", "data"}, {}]>
// HYBRID-SAME:    tensor<6x4xf32> {dist.sharding = #dist.sharding<@mesh, [{"data"}, {}], partial = sum{"outer"}>, nn.name = "w", nn.role = #nn.role<gradient>}
// HYBRID:         dist.constrain %{{.+}} <@mesh, [{}, {}], partial = sum{"outer", "data"}>
// HYBRID-NEXT:    dist.constrain %{{.+}} <@mesh, [{"data"}, {}], partial = sum{"outer"}> purpose gradient
func.func @loss_grad(%w: tensor<6x4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                     %x: tensor<8x6xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>},
                     %sum: tensor<6x4xf32> {nn.name = "w", nn.role = #nn.role<gradient>})
    -> (tensor<6x4xf32> {nn.name = "w", nn.role = #nn.role<gradient>}) {
  %0 = nn.einsum "bh,hf->bf" %x, %w : tensor<8x6xf32>, tensor<6x4xf32> -> tensor<8x4xf32>
  %1 = nn.einsum "bh,bf->hf" %x, %0 : tensor<8x6xf32>, tensor<8x4xf32> -> tensor<6x4xf32>
  %2 = math.exp %0 : tensor<8x4xf32>
  %3 = arith.addf %sum, %1 : tensor<6x4xf32>
  return %3 : tensor<6x4xf32>
}

// ZERO-LABEL: func @update
// TWO-LABEL: func @update
// EACH-LABEL: func @update
// EACH-SAME:    %[[W:.+]]: tensor<6x4xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>
// EACH:         dist.constrain %[[W]] <@mesh, [{"data"}, {}]>
// HYBRID-LABEL: func @update
// HYBRID:         dist.constrain %{{.+}} <@mesh, [{"data"}, {}]>
func.func @update(%w: tensor<6x4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                  %g: tensor<6x4xf32> {nn.name = "w", nn.role = #nn.role<gradient>})
    -> (tensor<6x4xf32> {nn.name = "w", nn.role = #nn.role<parameter>}) {
  %0 = arith.subf %w, %g : tensor<6x4xf32>
  return %0 : tensor<6x4xf32>
}
