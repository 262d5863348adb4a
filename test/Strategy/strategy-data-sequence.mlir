// RUN: cleave-opt %s --strategy-data="batch-axes=d sequence-axes=r,u zero=3" | FileCheck %s
// RUN: cleave-opt %s --strategy-data="sequence-axes=r zero=1" | FileCheck %s --check-prefix=ALONE
// RUN: cleave-opt %s --strategy-data="batch-axes=d sequence-axes=r,u zero=1 replicate=d" | FileCheck %s --check-prefix=HYBRID
// RUN: cleave-opt %s --strategy-data="batch-axes=d sequence-axes=r,u" -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

// Tokens have a position dimension after the batch; labels get theirs through the
// loss; an input of another length has none. Sums, and the dimensions that ZeRO
// splits, use the axes of sequence and data parallelism together.
// REMARK: a sequence of 6 does not divide by the 4 ranks of axes 'r' and 'u': it is padded to 8 with positions of weight 0
dist.mesh @mesh <["d"=2, "r"=2, "u"=2]>

// CHECK-LABEL: func @loss_grad
// CHECK-SAME:    tensor<8x4xf32> {dist.sharding = #dist.sharding<@mesh, [{"d", "r", "u"}, {}]>, nn.name = "w"
// CHECK-SAME:    tensor<4x6xi64> {dist.sharding = #dist.sharding<@mesh, [{"d"}, {"r", "u"}]>, nn.name = "x"
// CHECK-SAME:    tensor<4x6x4xf32> {dist.sharding = #dist.sharding<@mesh, [{"d"}, {"r", "u"}, {}]>, nn.name = "y"
// CHECK-SAME:    tensor<4x5xf32> {dist.sharding = #dist.sharding<@mesh, [{"d"}, {}]>, nn.batch_dim = 0 : i64, nn.name = "z"
// CHECK-SAME:    -> (tensor<f32> {dist.sharding = #dist.sharding<@mesh, [], partial = sum{"d", "r", "u"}>, nn.name = "loss"
// CHECK-SAME:    tensor<8x4xf32> {dist.sharding = #dist.sharding<@mesh, [{"d", "r", "u"}, {}]>, nn.name = "w", nn.role = #nn.role<gradient>}
// CHECK:         dist.constrain %{{.+}} <@mesh, [{}, {}], partial = sum{"d", "r", "u"}>

// ALONE-LABEL: func @loss_grad
// ALONE-SAME:    tensor<4x6xi64> {dist.sharding = #dist.sharding<@mesh, [{}, {"r"}]>, nn.name = "x"
// ALONE-SAME:    -> (tensor<f32> {dist.sharding = #dist.sharding<@mesh, [], partial = sum{"r"}>, nn.name = "loss"
// ALONE-LABEL: func @update
// ALONE:         dist.constrain %{{.+}} <@mesh, [{"r"}, {}]>

// HYBRID-LABEL: func @update
// HYBRID-SAME:    partial = sum{"d", "r", "u"}>, nn.name = "w", nn.role = #nn.role<gradient>}
// HYBRID:         dist.constrain %{{.+}} <@mesh, [{"r", "u"}, {}]>
func.func @loss_grad(%w: tensor<8x4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                     %x: tensor<4x6xi64> {nn.name = "x", nn.role = #nn.role<tokens>},
                     %y: tensor<4x6x4xf32> {nn.name = "y", nn.role = #nn.role<labels>},
                     %z: tensor<4x5xf32> {nn.batch_dim = 0 : i64, nn.name = "z", nn.role = #nn.role<input>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<8x4xf32> {nn.name = "w", nn.role = #nn.role<gradient>}) {
  %0 = nn.gather %w, %x dim = 0 : tensor<8x4xf32>, tensor<4x6xi64> -> tensor<4x6x4xf32>
  %1 = arith.mulf %0, %y : tensor<4x6x4xf32>
  %2 = nn.reduce sum %1 dims = [0, 1, 2] : tensor<4x6x4xf32> -> tensor<f32>
  %3 = nn.scatter_add %x, %y dim = 0 : tensor<4x6xi64>, tensor<4x6x4xf32> -> tensor<8x4xf32>
  return %2, %3 : tensor<f32>, tensor<8x4xf32>
}

func.func @update(%w: tensor<8x4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                  %g: tensor<8x4xf32> {nn.name = "w", nn.role = #nn.role<gradient>})
    -> (tensor<8x4xf32> {nn.name = "w", nn.role = #nn.role<parameter>}) {
  %0 = arith.subf %w, %g : tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}
