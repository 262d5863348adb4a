// RUN: cleave-opt %s -split-input-file -pipe-mark-stages=stages=2 | FileCheck %s

// Both products take the same time. Operations on inputs alone or parameters alone
// get no stage, and operations without readers are removed.
// CHECK: module attributes {pipe.stages = 2 : i64}
// CHECK-LABEL: @loss
// CHECK: nn.einsum "bi,io->bo" %{{.*}}, %{{.*}} {pipe.stage = 0 : i64}
// CHECK: nn.transpose %{{.*}} [1, 0] : tensor
// CHECK: nn.einsum "bi,io->bo" %{{.*}}, %{{.*}} {pipe.stage = 1 : i64}
// CHECK: nn.reduce sum %{{.*}} dims = [0, 1] {pipe.stage = 1 : i64}
// CHECK-NOT: math.exp
// CHECK: nn.reduce sum %{{.*}} dims = [0, 1] : tensor
// CHECK: return
func.func @loss(%w0: tensor<64x64xf32> {nn.name = "w0", nn.role = #nn.role<parameter>},
                %w1: tensor<64x64xf32> {nn.name = "w1", nn.role = #nn.role<parameter>},
                %x: tensor<8x64xf32> {nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
  %0 = nn.einsum "bi,io->bo" %x, %w0 : tensor<8x64xf32>, tensor<64x64xf32> -> tensor<8x64xf32>
  %t = nn.transpose %w1 [1, 0] : tensor<64x64xf32> -> tensor<64x64xf32>
  %1 = nn.einsum "bi,io->bo" %0, %t : tensor<8x64xf32>, tensor<64x64xf32> -> tensor<8x64xf32>
  %2 = nn.reduce sum %1 dims = [0, 1] : tensor<8x64xf32> -> tensor<f32>
  %dead = math.exp %1 : tensor<8x64xf32>
  %3 = nn.reduce sum %x dims = [0, 1] : tensor<8x64xf32> -> tensor<f32>
  return %2, %3 : tensor<f32>, tensor<f32>
}

// -----

// The cut is near half of the modelled time, but not where four values cross
// instead of one; the head takes longer than a layer. @forward gets the stages of
// the parameters in @loss.
// CHECK-LABEL: @forward
// CHECK: "bi,io->bo" %{{.*}}, %{{.*}} {pipe.stage = 0 : i64}
// CHECK: "bi,io->bo" %{{.*}}, %{{.*}} {pipe.stage = 1 : i64}
// CHECK-LABEL: @loss
// CHECK: "bi,io->bo" %{{.*}}, %{{.*}} {pipe.stage = 0 : i64}
// CHECK: "bi,iqo->qbo" %{{.*}}, %{{.*}} {pipe.stage = 0 : i64}
// CHECK: "qbo,qoi->bi" %{{.*}}, %{{.*}} {pipe.stage = 0 : i64}
// CHECK: arith.addf %{{.*}}, %{{.*}} {pipe.stage = 0 : i64}
// CHECK: "bi,io->bo" %{{.*}}, %{{.*}} {pipe.stage = 1 : i64}
func.func @forward(%w0: tensor<64x64xf32> {nn.name = "w0", nn.role = #nn.role<parameter>},
                   %head: tensor<64x512xf32> {nn.name = "head", nn.role = #nn.role<parameter>},
                   %x: tensor<8x64xf32> {nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<8x512xf32> {nn.name = "y", nn.role = #nn.role<output>}) {
  %0 = nn.einsum "bi,io->bo" %x, %w0 : tensor<8x64xf32>, tensor<64x64xf32> -> tensor<8x64xf32>
  %1 = nn.einsum "bi,io->bo" %0, %head : tensor<8x64xf32>, tensor<64x512xf32> -> tensor<8x512xf32>
  return %1 : tensor<8x512xf32>
}
func.func @loss(%w0: tensor<64x64xf32> {nn.name = "w0", nn.role = #nn.role<parameter>},
                %w1: tensor<64x4x64xf32> {nn.name = "w1", nn.role = #nn.role<parameter>},
                %w2: tensor<4x64x64xf32> {nn.name = "w2", nn.role = #nn.role<parameter>},
                %head: tensor<64x512xf32> {nn.name = "head", nn.role = #nn.role<parameter>},
                %x: tensor<8x64xf32> {nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
  %0 = nn.einsum "bi,io->bo" %x, %w0 : tensor<8x64xf32>, tensor<64x64xf32> -> tensor<8x64xf32>
  %1 = nn.einsum "bi,iqo->qbo" %0, %w1 : tensor<8x64xf32>, tensor<64x4x64xf32> -> tensor<4x8x64xf32>
  %2 = nn.einsum "qbo,qoi->bi" %1, %w2 : tensor<4x8x64xf32>, tensor<4x64x64xf32> -> tensor<8x64xf32>
  %3 = arith.addf %0, %2 : tensor<8x64xf32>
  %4 = nn.einsum "bi,io->bo" %3, %head : tensor<8x64xf32>, tensor<64x512xf32> -> tensor<8x512xf32>
  %5 = nn.reduce sum %4 dims = [0, 1] : tensor<8x512xf32> -> tensor<f32>
  %one = arith.constant dense<1.0> : tensor<f32>
  return %5, %one : tensor<f32>, tensor<f32>
}

// -----

// No gradient flows below the first trained parameter, so the four frozen
// layers take less time than the two trained ones.
// CHECK-LABEL: @loss
// CHECK-COUNT-4: nn.einsum {{.*}} {pipe.stage = 0 : i64}
// CHECK-COUNT-2: nn.einsum {{.*}} {pipe.stage = 1 : i64}
func.func @loss(%w0: tensor<64x64xf32> {nn.frozen, nn.name = "w0", nn.role = #nn.role<buffer>},
                %w1: tensor<64x64xf32> {nn.frozen, nn.name = "w1", nn.role = #nn.role<buffer>},
                %w2: tensor<64x64xf32> {nn.frozen, nn.name = "w2", nn.role = #nn.role<buffer>},
                %w3: tensor<64x64xf32> {nn.frozen, nn.name = "w3", nn.role = #nn.role<buffer>},
                %w4: tensor<64x64xf32> {nn.name = "w4", nn.role = #nn.role<parameter>},
                %w5: tensor<64x64xf32> {nn.name = "w5", nn.role = #nn.role<parameter>},
                %x: tensor<512x64xf32> {nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
  %0 = nn.einsum "bi,io->bo" %x, %w0 : tensor<512x64xf32>, tensor<64x64xf32> -> tensor<512x64xf32>
  %1 = nn.einsum "bi,io->bo" %0, %w1 : tensor<512x64xf32>, tensor<64x64xf32> -> tensor<512x64xf32>
  %2 = nn.einsum "bi,io->bo" %1, %w2 : tensor<512x64xf32>, tensor<64x64xf32> -> tensor<512x64xf32>
  %3 = nn.einsum "bi,io->bo" %2, %w3 : tensor<512x64xf32>, tensor<64x64xf32> -> tensor<512x64xf32>
  %4 = nn.einsum "bi,io->bo" %3, %w4 : tensor<512x64xf32>, tensor<64x64xf32> -> tensor<512x64xf32>
  %5 = nn.einsum "bi,io->bo" %4, %w5 : tensor<512x64xf32>, tensor<64x64xf32> -> tensor<512x64xf32>
  %6 = nn.reduce sum %5 dims = [0, 1] : tensor<512x64xf32> -> tensor<f32>
  %one = arith.constant dense<1.0> : tensor<f32>
  return %6, %one : tensor<f32>, tensor<f32>
}
