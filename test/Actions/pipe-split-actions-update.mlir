// RUN: cleave-opt --pipe-split-actions %s | FileCheck %s
// RUN: cleave-opt --pipe-split-actions=chained %s | FileCheck %s --check-prefix=CHAIN

// The update is split at each sum over stages: first the tied parameter's
// gradient is summed, then the squares of the norm.

// CHECK-LABEL: func.func @update.0
// CHECK-SAME: (%[[G:.*]]: tensor<4xf32> {nn.name = "w", nn.role = #nn.role<gradient>})
// CHECK-SAME: -> (tensor<4xf32> {nn.name = "sum.0.0", nn.role = #nn.role<residual>, pipe.slot = #pipe.slot<"update">})
// CHECK-SAME: pipe.sums = [#pipe.sum<operand = "sum.0.0", result = "sum.0.0.all", stages = [0, 2]>]
// CHECK-NEXT: return %[[G]]

// CHECK-LABEL: func.func @update.1
// CHECK-SAME: (%[[ALL:.*]]: tensor<4xf32> {nn.name = "sum.0.0.all", nn.role = #nn.role<residual>, pipe.slot = #pipe.slot<"update">})
// CHECK-SAME: pipe.sums = [#pipe.sum<operand = "sum.1.0", result = "sum.1.0.all">]
// CHECK: arith.mulf %[[ALL]], %[[ALL]]
// CHECK: nn.reduce

// An operation that no earlier part needs is placed in the last part.
// CHECK-LABEL: func.func @update.2
// CHECK-SAME: nn.name = "w", nn.role = #nn.role<parameter>}
// CHECK-SAME: nn.name = "sum.0.0.all", nn.role = #nn.role<residual>, pipe.slot = #pipe.slot<"update">}
// CHECK-SAME: nn.name = "sum.1.0.all", nn.role = #nn.role<residual>, pipe.slot = #pipe.slot<"update">}
// CHECK: arith.negf
// CHECK-NOT: pipe.sum_stages

// CHAIN-LABEL: func.func @update.0
// CHAIN-SAME: nn.name = "w", nn.role = #nn.role<gradient>}
// CHAIN-SAME: nn.name = "sum.0.0.before", nn.role = #nn.role<residual>, pipe.slot = #pipe.slot<"update">}
// CHAIN: arith.addf
func.func @update(%w: tensor<4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                  %g: tensor<4xf32> {nn.name = "w", nn.role = #nn.role<gradient>})
    -> (tensor<4xf32> {nn.name = "w", nn.role = #nn.role<parameter>}) {
  %minus = arith.negf %w : tensor<4xf32>
  %all = pipe.sum_stages %g {stages = array<i64: 0, 2>} : tensor<4xf32>
  %square = arith.mulf %all, %all : tensor<4xf32>
  %norm = nn.reduce sum %square dims = [0] : tensor<4xf32> -> tensor<f32>
  %total = pipe.sum_stages %norm : tensor<f32>
  %scale = nn.broadcast %total dims = [] : tensor<f32> -> tensor<4xf32>
  %scaled = arith.mulf %all, %scale : tensor<4xf32>
  %new = arith.addf %minus, %scaled : tensor<4xf32>
  return %new : tensor<4xf32>
}
