// RUN: cleave-opt %s -pass-pipeline="builtin.module(pipe-cut-stages,builtin.module(nn-differentiate{accumulate=true},nn-add-optimizer{optimizer=sgd no-decay=elsewhere},canonicalize,cse))" 2>&1 | FileCheck %s

// Each stage gets its own derivative and update. No stage warns about a pattern
// that matches a parameter of another stage only.
// CHECK-NOT: warning
// CHECK: module @stage0
// CHECK: func.func @loss_grad(%{{[^:]*}}: tensor<4x4xf32> {nn.name = "w", {{.*}}}, %{{[^:]*}}: tensor<4xf32> {nn.name = "unread", {{.*}}}, {{.*}} {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>}, %{{.*}}: tensor<2x4xf32> {nn.batch_dim = 0 : i64, nn.name = "cut.0.0.grad", nn.role = #nn.role<cotangent>}, %{{.*}}: tensor<4x4xf32> {nn.name = "w", nn.role = #nn.role<gradient>}, %{{.*}}: tensor<4xf32> {nn.name = "unread", nn.role = #nn.role<gradient>})
// CHECK-SAME: -> (tensor<2x4xf32> {{{.*}}nn.name = "cut.0.0", nn.role = #nn.role<activation>, pipe.differentiable}, tensor<2x4xi64> {{{.*}}nn.name = "cut.0.1", nn.role = #nn.role<activation>}, tensor<4x4xf32> {nn.name = "w", nn.role = #nn.role<gradient>}, tensor<4xf32> {nn.name = "unread", nn.role = #nn.role<gradient>})
// CHECK: func.func @update(
// CHECK-SAME: "lr"
// CHECK-NOT: nn.role = #nn.role<loss>
// CHECK: [[SUM:%.*]] = pipe.sum_stages %{{.*}} {stages = array<i64: 0, 2>} : tensor<4x4xf32>
// CHECK: arith.mulf [[SUM]], [[SUM]]
// CHECK: [[ALL:%.*]]:3 = pipe.sum_stages %{{.*}}, [[ZERO:%.*]], [[ZERO]] : tensor<f32>, tensor<f32>, tensor<f32>
// CHECK: nn.sgd %{{.*}}, %{{.*}}, [[SUM]],
// CHECK: return {{.*}}, [[ALL]]#1, [[ALL]]#2, %{{[^,]*}}, %{{[^,]*}} : tensor<4x4xf32>
// CHECK: func.func @init_state() -> (tensor<4x4xf32> {nn.name = "w.velocity", nn.role = #nn.role<state>}, tensor<4xf32> {nn.name = "unread.velocity", nn.role = #nn.role<state>})

// CHECK: module @stage1
// CHECK: func.func @loss_grad(
// CHECK-SAME: [[BACK:%[^:]*]]: tensor<2x4xf32> {nn.batch_dim = 0 : i64, nn.name = "cut.1.0.grad", nn.role = #nn.role<cotangent>}, [[LAST:%[^:]*]]: tensor<2x4xf32> {nn.batch_dim = 0 : i64, nn.name = "cut.1.2.grad", nn.role = #nn.role<cotangent>}, %{{[^:]*}}: tensor<4x4xf32> {nn.name = "v", nn.role = #nn.role<gradient>})
// CHECK-SAME: tensor<2x4xf32> {nn.batch_dim = 0 : i64, nn.name = "cut.0.0.grad", nn.role = #nn.role<cotangent>}, tensor<4x4xf32> {nn.name = "v", nn.role = #nn.role<gradient>})
// CHECK: [[THROUGH:%.*]] = nn.einsum "bo,io->bi" [[LAST]]
// CHECK: arith.addf [[BACK]], [[THROUGH]]

// CHECK: module @stage2
// CHECK: func.func @loss_grad(
// CHECK-SAME: %{{[^:]*}}: tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, %{{[^:]*}}: tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}, %{{[^:]*}}: tensor<4x4xf32> {nn.name = "w", nn.role = #nn.role<gradient>})
// CHECK-SAME: -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}, tensor<2x4xf32> {{{.*}}"cut.1.0.grad"{{.*}}}, tensor<2x4xf32> {{{.*}}"cut.1.2.grad"{{.*}}}, tensor<4x4xf32> {nn.name = "w", nn.role = #nn.role<gradient>})
// The squares of the tied gradient of w are counted in stage 0 only.
// CHECK: func.func @update(
// CHECK-SAME: [[LOSS:%[^:]*]]: tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, [[WEIGHT:%[^:]*]]: tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}
// CHECK-DAG: [[NONE:%.*]] = arith.constant dense<0.000000e+00> : tensor<f32>
// CHECK: pipe.sum_stages %{{.*}} {stages = array<i64: 0, 2>} : tensor<4x4xf32>
// CHECK: pipe.sum_stages [[NONE]], [[LOSS]], [[WEIGHT]]
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
