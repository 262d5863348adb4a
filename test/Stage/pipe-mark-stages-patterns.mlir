// RUN: cleave-opt %s -pipe-mark-stages="stages=3 patterns=emb,h\.0,(h\.1|emb)" | FileCheck %s

// The embedding is tied: the first and the last stage read it. A pattern matches
// a prefix of a name. Operations that no pattern matches (the sums) are placed so
// that the fewest bytes cross between stages.
// CHECK-LABEL: @loss
// CHECK: nn.gather {{.*}} {pipe.stage = 0 : i64}
// CHECK: "bi,io->bo" {{.*}} {pipe.stage = 1 : i64}
// CHECK: arith.addf {{.*}} {pipe.stage = 1 : i64}
// CHECK: "bi,io->bo" {{.*}} {pipe.stage = 2 : i64}
// CHECK: arith.addf {{.*}} {pipe.stage = 2 : i64}
// CHECK: "bi,vi->bv" {{.*}} {pipe.stage = 2 : i64}
func.func @loss(%emb: tensor<7x64xf32> {nn.name = "emb.weight", nn.role = #nn.role<parameter>},
                %w0: tensor<64x64xf32> {nn.name = "h.0.mlp.weight", nn.role = #nn.role<parameter>},
                %w1: tensor<64x64xf32> {nn.name = "h.1.mlp.weight", nn.role = #nn.role<parameter>},
                %x: tensor<8xi64> {nn.name = "x", nn.role = #nn.role<tokens>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
  %0 = nn.gather %emb, %x dim = 0 : tensor<7x64xf32>, tensor<8xi64> -> tensor<8x64xf32>
  %1 = nn.einsum "bi,io->bo" %0, %w0 : tensor<8x64xf32>, tensor<64x64xf32> -> tensor<8x64xf32>
  %2 = arith.addf %0, %1 : tensor<8x64xf32>
  %3 = nn.einsum "bi,io->bo" %2, %w1 : tensor<8x64xf32>, tensor<64x64xf32> -> tensor<8x64xf32>
  %4 = arith.addf %2, %3 : tensor<8x64xf32>
  %5 = nn.einsum "bi,vi->bv" %4, %emb : tensor<8x64xf32>, tensor<7x64xf32> -> tensor<8x7xf32>
  %6 = nn.reduce sum %5 dims = [0, 1] : tensor<8x7xf32> -> tensor<f32>
  %one = arith.constant dense<1.0> : tensor<f32>
  return %6, %one : tensor<f32>, tensor<f32>
}
