// RUN: cleave-opt %s -split-input-file -dist-split-handovers="previous=inter next=inter" | FileCheck %s
// RUN: cleave-opt %s -split-input-file -dist-split-handovers="previous=intra next=intra" | FileCheck %s --check-prefix=FAST
// RUN: cleave-opt %s -split-input-file -dist-propagate -dist-split-handovers="previous=inter next=inter" -dist-plan-ops -dist-partition -dist-verify-variance -cse -dist-combine | FileCheck %s --check-prefix=LOCAL

#whole = #dist.sharding<@m, [{}, {}]>
#columns = #dist.sharding<@m, [{}, {"t"}]>

// The stages exchange tiles. One gather serves all products that read the argument.
// The outgoing value is computed in tiles, together with the residual addition. If
// links between stages are as fast as those between tensor ranks, nothing changes.
dist.mesh @m <["t"=2]>

// CHECK-LABEL: func @layer
// CHECK-SAME:    %[[X:.+]]: tensor<512x512xf32> {dist.sharding = #dist.sharding<@m, [{"t"}, {}]>
// CHECK-SAME:      pipe.inside = #dist.sharding<@m, [{}, {}]>}, %{{.*}} -> (tensor<512x512xf32> {dist.sharding = #dist.sharding<@m, [{"t"}, {}]>
// CHECK:         %[[ALL:.+]] = dist.constrain %[[X]] <@m, [{}, {}]>
// CHECK:         nn.einsum "bh,hf->bf" %[[ALL]]
// CHECK:         nn.einsum "bh,hf->bf" %[[ALL]]
// CHECK:         %[[Y:.+]] = nn.einsum "bf,hf->bh" {{.*}} {dist.sharding = [#dist.sharding<@m, [{"t"}, {}]>]}
// CHECK:         arith.addf %[[Y]], %[[X]] {dist.sharding = [#dist.sharding<@m, [{"t"}, {}]>]}

// FAST-LABEL: func @layer
// FAST-NOT:     dist.constrain
// FAST-NOT:     pipe.inside

// LOCAL-LABEL: func @layer
// LOCAL-SAME:    %[[X:.+]]: tensor<256x512xf32>
// LOCAL:         dist.all_gather %[[X]] dims [0]
// LOCAL-NOT:     dist.all_gather
// LOCAL-NOT:     dist.all_reduce
// LOCAL:         dist.reduce_scatter
// LOCAL:         arith.addf {{.*}} : tensor<256x512xf32>
// LOCAL:         return {{.*}} : tensor<256x512xf32>
func.func @layer(%x: tensor<512x512xf32> {nn.name = "cut.0.0", nn.role = #nn.role<activation>, dist.sharding = #whole},
                 %v: tensor<512x512xf32> {dist.sharding = #columns}, %w: tensor<512x512xf32> {dist.sharding = #columns})
    -> (tensor<512x512xf32> {nn.name = "cut.1.0", nn.role = #nn.role<activation>, dist.sharding = #whole}) {
  %0 = nn.einsum "bh,hf->bf" %x, %v {dist.sharding = [#columns]} : tensor<512x512xf32>, tensor<512x512xf32> -> tensor<512x512xf32>
  %1 = nn.einsum "bh,hf->bf" %x, %w {dist.sharding = [#columns]} : tensor<512x512xf32>, tensor<512x512xf32> -> tensor<512x512xf32>
  %2 = arith.mulf %0, %1 {dist.sharding = [#columns]} : tensor<512x512xf32>
  %3 = nn.einsum "bf,hf->bh" %2, %w {dist.sharding = [#whole]} : tensor<512x512xf32>, tensor<512x512xf32> -> tensor<512x512xf32>
  %4 = arith.addf %3, %x {dist.sharding = [#whole]} : tensor<512x512xf32>
  return %4 : tensor<512x512xf32>
}

// -----

// An outgoing sum over tensor ranks is reduce-scattered, not reduced and sliced.
#whole = #dist.sharding<@m, [{}, {}]>
dist.mesh @m <["t"=2]>

// LOCAL-LABEL: func @scatter
// LOCAL-NOT:     dist.all_reduce
// LOCAL:         dist.reduce_scatter
func.func @scatter(%x: tensor<512x512xf32> {dist.sharding = #dist.sharding<@m, [{}, {"t"}]>}, %w: tensor<512x512xf32> {dist.sharding = #dist.sharding<@m, [{"t"}, {}]>})
    -> (tensor<512x512xf32> {nn.name = "cut.1.0", nn.role = #nn.role<activation>, dist.sharding = #whole}) {
  %0 = nn.einsum "bh,hf->bf" %x, %w {dist.sharding = [#whole]} : tensor<512x512xf32>, tensor<512x512xf32> -> tensor<512x512xf32>
  return %0 : tensor<512x512xf32>
}

// -----

// A value that the stage only relays is neither gathered nor sliced: the activation,
// and the cotangent to which the stage adds its own part.
#whole = #dist.sharding<@m, [{}, {}]>
dist.mesh @m <["t"=2]>

// CHECK-LABEL: func @relay
// CHECK-NOT:     dist.constrain
// CHECK:         return %{{.*}}, %{{.*}}
// LOCAL-LABEL: func @relay
// LOCAL-NOT:     dist.all_gather
// LOCAL:         return
func.func @relay(%x: tensor<512x512xf32> {nn.name = "cut.0.0", nn.role = #nn.role<activation>, dist.sharding = #whole},
                 %dy: tensor<512x512xf32> {nn.name = "cut.1.0.grad", nn.role = #nn.role<cotangent>, dist.sharding = #whole},
                 %own: tensor<512x512xf32> {dist.sharding = #whole})
    -> (tensor<512x512xf32> {nn.name = "cut.1.0", nn.role = #nn.role<activation>, dist.sharding = #whole},
        tensor<512x512xf32> {nn.name = "cut.0.0.grad", nn.role = #nn.role<cotangent>, dist.sharding = #whole}) {
  %0 = arith.addf %own, %dy {dist.sharding = [#whole]} : tensor<512x512xf32>
  return %x, %0 : tensor<512x512xf32>, tensor<512x512xf32>
}

// -----

// The outermost dimension that divides without padding is split; if there is none, nothing is.
#whole = #dist.sharding<@m, [{}, {}]>
#samples = #dist.sharding<@m, [{"d"}, {}]>
dist.mesh @m <["d"=2, "t"=2]> links ["inter", "intra"]

// CHECK-LABEL: func @dimensions
// CHECK-SAME:    tensor<3x262144xf32> {dist.sharding = #dist.sharding<@m, [{}, {"t"}]>
// CHECK-SAME:    tensor<513x513xf32> {dist.sharding = #dist.sharding<@m, [{}, {}]>, nn.name
// CHECK-SAME:    tensor<2x262144xf32> {dist.sharding = #dist.sharding<@m, [{"d"}, {"t"}]>
// CHECK-SAME:    tensor<4x262144xf32> {dist.sharding = #dist.sharding<@m, [{"d", "t"}, {}]>
// CHECK-SAME:    tensor<2x4xf32> {dist.sharding = #dist.sharding<@m, [{}, {}]>, nn.name
func.func @dimensions(%a: tensor<3x262144xf32> {nn.name = "cut.0.0", nn.role = #nn.role<activation>, dist.sharding = #whole},
                      %b: tensor<513x513xf32> {nn.name = "cut.0.1", nn.role = #nn.role<activation>, dist.sharding = #whole},
                      %c: tensor<2x262144xf32> {nn.name = "cut.0.2", nn.role = #nn.role<activation>, dist.sharding = #samples},
                      %d: tensor<4x262144xf32> {nn.name = "cut.0.3", nn.role = #nn.role<activation>, dist.sharding = #samples},
                      %small: tensor<2x4xf32> {nn.name = "cut.0.4", nn.role = #nn.role<activation>, dist.sharding = #whole}) {
  return
}
