// RUN: cleave-opt %s -split-input-file -dist-propagate -dist-plan-ops -dist-partition -dist-verify-variance | FileCheck %s
// RUN: cleave-opt %s -split-input-file -dist-propagate -dist-plan-ops -dist-partition -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

// Megatron's MLP: one all-reduce, before the bias.
dist.mesh @m <["d"=2, "t"=2]>
// CHECK-LABEL: func @mlp
// CHECK-SAME:    tensor<2x6xf32> {dist.global_type = tensor<4x6xf32>, dist.sharding = #dist.sharding<@m, [{"d"}, {}]>}
// CHECK:         nn.einsum "bh,hf->bf" {{.*}} -> tensor<2x5xf32>
// CHECK-NEXT:    nn.gelu
// CHECK-NEXT:    %[[Y:.+]] = nn.einsum "bf,fh->bh"
// CHECK:         %[[SUM:.+]] = dist.all_reduce sum %[[Y]] over @m {"t"} purpose activation : tensor<2x6xf32>
// CHECK-NEXT:    arith.addf %[[SUM]]
func.func @mlp(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@m, [{"d"}, {}]>},
               %w1: tensor<6x10xf32> {dist.sharding = #dist.sharding<@m, [{}, {"t"}]>},
               %w2: tensor<10x6xf32> {dist.sharding = #dist.sharding<@m, [{"t"}, {}]>},
               %b: tensor<6xf32> {dist.sharding = #dist.sharding<@m, [{}]>}) -> tensor<4x6xf32> {
  %0 = nn.einsum "bh,hf->bf" %x, %w1 : tensor<4x6xf32>, tensor<6x10xf32> -> tensor<4x10xf32>
  %1 = nn.gelu tanh %0 : tensor<4x10xf32>
  %2 = nn.einsum "bf,fh->bh" %1, %w2 : tensor<4x10xf32>, tensor<10x6xf32> -> tensor<4x6xf32>
  %3 = nn.broadcast %b dims = [1] : tensor<6xf32> -> tensor<4x6xf32>
  %4 = arith.addf %2, %3 : tensor<4x6xf32>
  return %4 : tensor<4x6xf32>
}

// -----

// Size 5 on 2 ranks: tiles of 3, masked before they are summed.
dist.mesh @m <["t"=2]>
// CHECK-LABEL: func @padded
// CHECK-SAME:    %[[X:[a-z0-9]+]]: tensor<3xf32>
// CHECK:         %[[AT:.+]] = dist.tile_offset tile 3 over @m {"t"} : tensor<i64>
// CHECK:         arith.subi %{{.+}}, %[[AT]]
// CHECK:         %[[MASKED:.+]] = arith.select %{{.+}}, %[[X]]
// CHECK:         %[[PART:.+]] = nn.reduce sum %[[MASKED]]
// CHECK:         dist.all_reduce sum %[[PART]]
func.func @padded(%x: tensor<5xf32> {dist.sharding = #dist.sharding<@m, [{"t"}]>}) -> tensor<f32> {
  %0 = nn.reduce sum %x dims = [0] : tensor<5xf32> -> tensor<f32>
  return %0 : tensor<f32>
}

// -----

// Partial sums over "d" become tiles (a reduce-scatter); the result is all-gathered.
dist.mesh @m <["d"=2]>
// CHECK-LABEL: func @update
// CHECK-SAME:    %[[P:[a-z0-9]+]]: tensor<4x3xf32>
// CHECK-SAME:    %[[G:[a-z0-9]+]]: tensor<4x3xf32>
// CHECK:         %[[TILE:.+]] = dist.reduce_scatter sum %[[G]] dims [0] over @m {"d"} purpose gradient : (tensor<4x3xf32>) -> tensor<2x3xf32>
// CHECK:         %[[OLD:.+]] = dist.slice %[[P]] dim 0
// CHECK:         %[[NEW:.+]] = arith.subf %[[OLD]], %[[TILE]]
// CHECK:         dist.all_gather %[[NEW]] dims [0] over @m {"d"} purpose parameter
func.func @update(%p: tensor<4x3xf32> {nn.name = "w", nn.role = #nn.role<parameter>, dist.sharding = #dist.sharding<@m, [{}, {}]>},
                  %g: tensor<4x3xf32> {nn.name = "w", nn.role = #nn.role<gradient>, dist.sharding = #dist.sharding<@m, [{}, {}], partial = sum{"d"}>})
    -> (tensor<4x3xf32> {nn.name = "w", nn.role = #nn.role<parameter>, dist.sharding = #dist.sharding<@m, [{}, {}]>}) {
  %0 = dist.constrain %g <@m, [{"d"}, {}]> : tensor<4x3xf32>
  %1 = arith.subf %p, %0 : tensor<4x3xf32>
  return %1 : tensor<4x3xf32>
}

// -----

// Swapped axes: tiles are permuted between ranks, nothing is gathered.
dist.mesh @m <["x"=2, "y"=2]>
// CHECK-LABEL: func @swap
// CHECK:         dist.collective_permute %{{.+}} pairs [0, 0, 2, 1, 1, 2, 3, 3] over @m {"x", "y"}
// CHECK-NEXT:    return
func.func @swap(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@m, [{"x"}, {"y"}]>})
    -> (tensor<4x6xf32> {dist.sharding = #dist.sharding<@m, [{"y"}, {"x"}]>}) {
  return %x : tensor<4x6xf32>
}

// -----

// Moving an axis to another dimension is an all-to-all.
dist.mesh @m <["x"=2]>
// CHECK-LABEL: func @exchange
// CHECK:         dist.all_to_all %{{.+}} split [1] concat [0] over @m {"x"} purpose activation : (tensor<2x6xf32>) -> tensor<4x3xf32>
// CHECK-NEXT:    return
func.func @exchange(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@m, [{"x"}, {}]>})
    -> (tensor<4x6xf32> {dist.sharding = #dist.sharding<@m, [{}, {"x"}]>}) {
  return %x : tensor<4x6xf32>
}

// -----

// A gather that no sharding requested is reported.
dist.mesh @m <["t"=2]>
// REMARK-COUNT-1: remark: unrequested all-gather of 80 bytes over #dist.axes<{"t"}>: nn.rotary reads argument 0 of type 'tensor<1x5x1x4xf32>' as #dist.sharding<@m, [{}, {}, {}, {}]>, it lies as #dist.sharding<@m, [{}, {}, {}, {"t"}]>
func.func @gather(%x: tensor<1x5x1x4xf32> {dist.sharding = #dist.sharding<@m, [{}, {}, {}, {"t"}]>},
                  %cos: tensor<5x2xf32>, %sin: tensor<5x2xf32>) -> tensor<1x5x1x4xf32> {
  %0 = nn.rotary %x, %cos, %sin : tensor<1x5x1x4xf32>, tensor<5x2xf32>
  return %0 : tensor<1x5x1x4xf32>
}

// -----

// A result that is converted to another layout is gathered for its reader.
dist.mesh @m <["t"=2]>
// REMARK: remark: unrequested all-gather of 96 bytes over #dist.axes<{"t"}>: nn.softmax reads the result of math.exp of type 'tensor<4x6xf32>' as #dist.sharding<@m, [{}, {}]>, it is made as #dist.sharding<@m, [{"t"}, {}]>
func.func @gather_result(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@m, [{"t"}, {}]>}) -> tensor<4x6xf32> {
  %0 = math.exp %x {dist.sharding = [#dist.sharding<@m, [{}, {}]>]} : tensor<4x6xf32>
  %1 = nn.softmax %0 {dist.sharding = [#dist.sharding<@m, [{}, {}]>]} : tensor<4x6xf32>
  return %1 : tensor<4x6xf32>
}

// -----

// Communication that results or constraints request is not reported.
dist.mesh @m <["x"=4]>
// REMARK-NOT: unrequested
func.func @asked(%a: tensor<10x7xf32> {dist.sharding = #dist.sharding<@m, [{"x":(1)2}, {"x":(2)2}]>})
    -> (tensor<7xf32> {dist.sharding = #dist.sharding<@m, [{"x":(1)2}]>}, tensor<10xf32>) {
  %0 = nn.reduce sum %a dims = [0] : tensor<10x7xf32> -> tensor<7xf32>
  %1 = nn.reduce max %a dims = [1] : tensor<10x7xf32> -> tensor<10xf32>
  %2 = dist.constrain %1 <@m, [{"x"}]> : tensor<10xf32>
  return %0, %2 : tensor<7xf32>, tensor<10xf32>
}

// -----

// A gather inside an operation's local form is reported with its reason.
dist.mesh @m <["x"=2]>
// REMARK: remark: unrequested all-gather of 96 bytes over #dist.axes<{"x"}>: nn.conv_input_grad reads argument 0 of type 'tensor<2x4x3xf32>' with dimension 2 whole: stride 2 does not divide the tiles of 3 elements of its result; 2 times in all
// REMARK-NOT: unrequested
func.func @strided(%g: tensor<2x4x3xf32> {dist.sharding = #dist.sharding<@m, [{}, {}, {"x"}]>}, %w: tensor<4x3x2xf32>)
    -> (tensor<2x3x6xf32> {dist.sharding = #dist.sharding<@m, [{}, {}, {"x"}]>}, tensor<2x3x6xf32> {dist.sharding = #dist.sharding<@m, [{}, {}, {"x"}]>}) {
  %0 = nn.conv_input_grad %g, %w strides = [2] dilations = [1] low = [0] high = [0] groups = 1
      : tensor<2x4x3xf32>, tensor<4x3x2xf32> -> tensor<2x3x6xf32>
  %1 = nn.conv_input_grad %g, %w strides = [2] dilations = [1] low = [0] high = [0] groups = 1
      : tensor<2x4x3xf32>, tensor<4x3x2xf32> -> tensor<2x3x6xf32>
  return %0, %1 : tensor<2x3x6xf32>, tensor<2x3x6xf32>
}

// -----

// Communication caused by a size that does not divide is reported once, with the
// reason. Tiles of 5 over x are 3 and 2; those over x and y are 2, 2, 1 and 0.
dist.mesh @m <["x"=2, "y"=2]>
// REMARK: remark: dimension 0 of size 5 does not divide by the 4 ranks of "x", "y", so that tiles do not line up, as those of a multiple would: 2 unrequested exchanges of 64 bytes in all, the first over #dist.axes<{"x", "y"}>: math.exp reads input 'left' of type 'tensor<5x4xf32>' as #dist.sharding<@m, [{"x", "y"}, {}]>, it lies as #dist.sharding<@m, [{"x"}, {}], partial = sum{"y"}>
// REMARK-NOT: unrequested
func.func @uneven(%x: tensor<5x4xf32> {dist.sharding = #dist.sharding<@m, [{"x"}, {}], partial = sum{"y"}>, nn.name = "left", nn.role = #nn.role<input>},
                  %y: tensor<5x4xf32> {dist.sharding = #dist.sharding<@m, [{"x"}, {}], partial = sum{"y"}>, nn.name = "right", nn.role = #nn.role<input>})
    -> (tensor<5x4xf32> {dist.sharding = #dist.sharding<@m, [{"x", "y"}, {}]>}, tensor<5x4xf32> {dist.sharding = #dist.sharding<@m, [{"x", "y"}, {}]>}) {
  %0 = math.exp %x {dist.sharding = [#dist.sharding<@m, [{"x", "y"}, {}]>]} : tensor<5x4xf32>
  %1 = math.exp %y {dist.sharding = [#dist.sharding<@m, [{"x", "y"}, {}]>]} : tensor<5x4xf32>
  return %0, %1 : tensor<5x4xf32>, tensor<5x4xf32>
}

// -----

// Equal remarks are reported once.
dist.mesh @m <["t"=2]>
// REMARK: remark: unrequested all-gather of 96 bytes over #dist.axes<{"t"}>: nn.softmax reads the result of math.exp {{.*}}; 2 times in all
// REMARK-NOT: unrequested
func.func @twice(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@m, [{"t"}, {}]>}) -> tensor<4x6xf32> {
  %0 = math.exp %x {dist.sharding = [#dist.sharding<@m, [{}, {}]>]} : tensor<4x6xf32>
  %1 = nn.softmax %0 {dist.sharding = [#dist.sharding<@m, [{}, {}]>]} : tensor<4x6xf32>
  %2 = math.exp %1 {dist.sharding = [#dist.sharding<@m, [{"t"}, {}]>]} : tensor<4x6xf32>
  %3 = math.exp %2 {dist.sharding = [#dist.sharding<@m, [{}, {}]>]} : tensor<4x6xf32>
  %4 = nn.softmax %3 {dist.sharding = [#dist.sharding<@m, [{}, {}]>]} : tensor<4x6xf32>
  return %4 : tensor<4x6xf32>
}

// -----

// Norm statistics of split rows are combined: two sums with one number per row,
// padding masked, and no gather.
dist.mesh @m <["t"=2]>
// CHECK-LABEL: func.func @layer_norm
// CHECK-SAME:    %[[X:.*]]: tensor<4x3xf32>
func.func @layer_norm(%x: tensor<4x5xf32> {dist.sharding = #dist.sharding<@m, [{}, {"t"}]>},
                      %scale: tensor<5xf32>, %shift: tensor<5xf32>) -> tensor<4x5xf32> {
  // CHECK:     %[[MASKED:.*]] = arith.select %{{.*}}, %[[X]], %{{.*}} {dist.pad_mask}
  // CHECK:     %[[TILE:.*]] = nn.reduce sum %[[MASKED]] dims = [1]
  // CHECK:     dist.all_reduce sum %[[TILE]] over @m {"t"} purpose activation : tensor<4xf32>
  // CHECK:     dist.all_reduce sum %{{.*}} over @m {"t"} purpose activation : tensor<4xf32>
  // CHECK-NOT: all_gather
  // CHECK:     return
  %y, %mean, %rstd = nn.layer_norm %x, %scale, %shift epsilon = 1.0e-5
      : (tensor<4x5xf32>, tensor<5xf32>, tensor<5xf32>) -> (tensor<4x5xf32>, tensor<4xf32>, tensor<4xf32>)
  return %y : tensor<4x5xf32>
}

// -----

// An exchange sends only the box of elements that the target tile has on another rank.
dist.mesh @m <["t"=2]>
// CHECK-LABEL: func.func @slice
func.func @slice(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@m, [{}, {"t"}]>})
    -> (tensor<4x4xf32> {dist.sharding = #dist.sharding<@m, [{}, {"t"}]>}) {
  // CHECK:     dist.window %{{.*}} dim 1 size 6 base 1 step 2 stride 1 whole 4 over @m {"t"} purpose activation : (tensor<4x3xf32>) -> tensor<4x2xf32>
  // CHECK-NOT: all_gather
  %0 = nn.slice %x [0, 1] [4, 4] [1, 1] : tensor<4x6xf32> -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}
