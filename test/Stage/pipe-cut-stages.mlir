// RUN: cleave-opt %s -split-input-file -pipe-cut-stages | FileCheck %s
// RUN: cleave-opt %s -split-input-file -pipe-cut-stages | FileCheck %s --check-prefix=POSITIONS

// %0 is read two stages later, so the stage between relays it; %i is an integer.
// The transpose of w belongs to no stage: both stages that read it recompute it.
// CHECK: module attributes {pipe.stages = 3 : i64}
// CHECK: module @stage0 attributes {pipe.scalar = tensor<f32>, pipe.stage = 0 : i64, pipe.stages = 3 : i64}
// CHECK: func.func @forward(%{{.*}}: tensor<4x4xf32> {nn.name = "w", nn.role = #nn.role<parameter>, pipe.stages = array<i64: 0, 2>}, %{{.*}} {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>})
// CHECK-SAME: -> (tensor<2x4xf32> {nn.batch_dim = 0 : i64, nn.name = "forward.cut.0.0", nn.role = #nn.role<activation>}, tensor<2x4xf32> {nn.name = "early", nn.role = #nn.role<output>})
// CHECK: func.func @loss(%{{.*}} {nn.name = "w", nn.role = #nn.role<parameter>, pipe.stages = array<i64: 0, 2>}, %{{.*}} {nn.name = "unread", nn.role = #nn.role<parameter>}, %{{.*}} {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>})
// CHECK-SAME: -> (tensor<2x4xf32> {nn.batch_dim = 0 : i64, nn.name = "cut.0.0", nn.role = #nn.role<activation>, pipe.differentiable}, tensor<2x4xi64> {nn.batch_dim = 0 : i64, nn.name = "cut.0.1", nn.role = #nn.role<activation>})
// CHECK: nn.transpose
// CHECK: [[SENT:%.*]] = nn.einsum
// CHECK-NOT: pipe.stage
// CHECK: [[INDEX:%.*]] = arith.fptosi
// CHECK: return [[SENT]], [[INDEX]]
// CHECK: module @stage1
// CHECK: func.func @forward
// CHECK-SAME: "forward.cut.0.0"
// CHECK-SAME: -> (tensor<2x4xf32> {nn.name = "late", nn.role = #nn.role<output>})
// CHECK: func.func @loss(%{{.*}}: tensor<4x4xf32> {nn.name = "v", nn.role = #nn.role<parameter>}, [[FIRST:%.*]]: tensor<2x4xf32> {nn.batch_dim = 0 : i64, nn.name = "cut.0.0", {{.*}}}, [[SECOND:%.*]]: tensor<2x4xi64>
// CHECK-SAME: -> (tensor<2x4xf32> {nn.batch_dim = 0 : i64, nn.name = "cut.1.0", nn.role = #nn.role<activation>, pipe.differentiable}, tensor<2x4xi64> {nn.batch_dim = 0 : i64, nn.name = "cut.1.1", nn.role = #nn.role<activation>}, tensor<2x4xf32> {nn.batch_dim = 0 : i64, nn.name = "cut.1.2", nn.role = #nn.role<activation>, pipe.differentiable})
// CHECK: [[OWN:%.*]] = nn.einsum
// CHECK: return [[FIRST]], [[SECOND]], [[OWN]]
// CHECK: module @stage2
// CHECK-NOT: @forward
// CHECK: func.func @loss
// CHECK-SAME: -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>})
// CHECK: nn.transpose
// CHECK: nn.einsum
// CHECK: arith.constant
module attributes {pipe.stages = 3 : i64} {
  func.func @forward(%w: tensor<4x4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                     %v: tensor<4x4xf32> {nn.name = "v", nn.role = #nn.role<parameter>},
                     %x: tensor<2x4xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>})
      -> (tensor<2x4xf32> {nn.name = "early", nn.role = #nn.role<output>}, tensor<2x4xf32> {nn.name = "late", nn.role = #nn.role<output>}) {
    %0 = nn.einsum "bi,io->bo" %x, %w {pipe.stage = 0 : i64} : tensor<2x4xf32>, tensor<4x4xf32> -> tensor<2x4xf32>
    %1 = nn.einsum "bi,io->bo" %0, %v {pipe.stage = 1 : i64} : tensor<2x4xf32>, tensor<4x4xf32> -> tensor<2x4xf32>
    return %0, %1 : tensor<2x4xf32>, tensor<2x4xf32>
  }
  func.func @loss(%w: tensor<4x4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                  %v: tensor<4x4xf32> {nn.name = "v", nn.role = #nn.role<parameter>},
                  %u: tensor<4xf32> {nn.name = "unread", nn.role = #nn.role<parameter>},
                  %x: tensor<2x4xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>})
      -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
    %t = nn.transpose %w [1, 0] : tensor<4x4xf32> -> tensor<4x4xf32>
    %0 = nn.einsum "bi,io->bo" %x, %t {pipe.stage = 0 : i64} : tensor<2x4xf32>, tensor<4x4xf32> -> tensor<2x4xf32>
    %i = arith.fptosi %0 {pipe.stage = 0 : i64} : tensor<2x4xf32> to tensor<2x4xi64>
    %1 = nn.einsum "bi,io->bo" %0, %v {pipe.stage = 1 : i64} : tensor<2x4xf32>, tensor<4x4xf32> -> tensor<2x4xf32>
    %2 = nn.einsum "bi,io->bo" %1, %t {pipe.stage = 2 : i64} : tensor<2x4xf32>, tensor<4x4xf32> -> tensor<2x4xf32>
    %3 = arith.addf %2, %0 {pipe.stage = 2 : i64} : tensor<2x4xf32>
    %4 = arith.sitofp %i {pipe.stage = 2 : i64} : tensor<2x4xi64> to tensor<2x4xf32>
    %5 = arith.mulf %3, %4 {pipe.stage = 2 : i64} : tensor<2x4xf32>
    %6 = nn.reduce sum %5 dims = [0, 1] {pipe.stage = 2 : i64} : tensor<2x4xf32> -> tensor<f32>
    %one = arith.constant dense<1.0> : tensor<f32>
    return %6, %one : tensor<f32>, tensor<f32>
  }
}

// -----

// The position dimension is propagated across the cut, even if the batch dimension
// of one sample has been folded away.
// POSITIONS: -> (tensor<3x4xf32> {nn.name = "cut.0.0", nn.position_dim = 0 : i64, nn.role = #nn.role<activation>
module attributes {pipe.stages = 2 : i64} {
  func.func @loss(%w: tensor<4x4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                  %x: tensor<1x3x4xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>})
      -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
    %0 = nn.reshape %x {pipe.stage = 0 : i64} : tensor<1x3x4xf32> -> tensor<3x4xf32>
    %1 = nn.einsum "si,io->so" %0, %w {pipe.stage = 0 : i64} : tensor<3x4xf32>, tensor<4x4xf32> -> tensor<3x4xf32>
    %2 = nn.einsum "si,io->so" %1, %w {pipe.stage = 1 : i64} : tensor<3x4xf32>, tensor<4x4xf32> -> tensor<3x4xf32>
    %3 = nn.reduce sum %2 dims = [0, 1] {pipe.stage = 1 : i64} : tensor<3x4xf32> -> tensor<f32>
    %one = arith.constant dense<1.0> : tensor<f32>
    return %3, %one : tensor<f32>, tensor<f32>
  }
}
