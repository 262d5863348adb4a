// RUN: cleave-opt %s -pass-pipeline='builtin.module(pipe-split-shards{axes=data},pipe-split-actions)' -split-input-file | FileCheck %s
// RUN: cleave-opt %s -pass-pipeline='builtin.module(pipe-split-shards{unshard=false reduce=false axes=data},pipe-split-actions)' -split-input-file | FileCheck %s --check-prefix=NONE

dist.mesh @m <["data"=2, "tensor"=2]>

// A parameter (or a value computed from parameters alone) is gathered once, in
// @unshard. F and I read the gathered value and save nothing of it. Gathers over
// other axes, and gathers of values that the backward pass computes, stay.
// CHECK-LABEL: func.func @unshard(
// CHECK-SAME:    %[[W:.+]]: tensor<4xf32> {nn.name = "w", nn.role = #nn.role<parameter>}, %[[S:.+]]: tensor<4xf32> {nn.name = "s"
// CHECK-SAME:    -> (tensor<8xf32> {nn.name = "gathered0", nn.role = #nn.role<residual>, pipe.slot = #pipe.slot<"unshard">},
// CHECK-SAME:        tensor<8xf32> {nn.name = "gathered1", nn.role = #nn.role<residual>, pipe.slot = #pipe.slot<"unshard">})
// CHECK:         %[[A:.+]] = dist.all_gather %[[W]]
// CHECK-NOT:       pipe.action
// CHECK:         %[[E:.+]] = math.exp %[[S]]
// CHECK:         %[[B:.+]] = dist.all_gather %[[E]]
// CHECK:         return %[[A]], %[[B]]
// CHECK-LABEL: func.func @F(
// CHECK-SAME:    nn.name = "cut.0.0"
// CHECK-SAME:    tensor<8xf32> {nn.name = "gathered0", nn.role = #nn.role<residual>, pipe.slot = #pipe.slot<"unshard">}
// CHECK-NOT:     dist.all_gather {{.*}}"data"
// CHECK:         dist.all_gather {{.*}}"tensor"
// CHECK:         return
// CHECK-LABEL: func.func @I(
// CHECK-SAME:    tensor<4xf32> {nn.name = "w", nn.role = #nn.role<parameter>}
// CHECK-SAME:    tensor<8xf32> {nn.name = "gathered0", nn.role = #nn.role<residual>, pipe.slot = #pipe.slot<"unshard">}
// CHECK:         nn.rematerialize
// CHECK:         dist.all_gather {{.*}}"data"

// NONE-NOT:    @unshard
// NONE-NOT:    @reduce_grad
func.func @loss_grad(%w: tensor<4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                     %s: tensor<4xf32> {nn.name = "s", nn.role = #nn.role<parameter>},
                     %x: tensor<8xf32> {nn.name = "cut.0.0", nn.role = #nn.role<activation>},
                     %dy: tensor<8xf32> {nn.name = "cut.1.0.grad", nn.role = #nn.role<cotangent>})
    -> (tensor<8xf32> {nn.name = "cut.1.0", nn.role = #nn.role<activation>},
        tensor<8xf32> {nn.name = "cut.0.0.grad", nn.role = #nn.role<cotangent>}) {
  %0 = dist.all_gather %w dims [0] over @m {"data"} purpose parameter {pipe.action = "F"} : (tensor<4xf32>) -> tensor<8xf32>
  %1 = math.exp %s : tensor<4xf32>
  %2 = dist.all_gather %1 dims [0] over @m {"data"} purpose parameter : (tensor<4xf32>) -> tensor<8xf32>
  %3 = dist.all_gather %s dims [0] over @m {"tensor"} purpose parameter : (tensor<4xf32>) -> tensor<8xf32>
  %4 = arith.mulf %x, %0 : tensor<8xf32>
  %5 = arith.mulf %4, %2 : tensor<8xf32>
  %y = arith.addf %5, %3 : tensor<8xf32>
  %6 = arith.mulf %dy, %0 : tensor<8xf32>
  %7 = nn.rematerialize %w after %6 : tensor<4xf32>, tensor<8xf32>
  %8 = dist.all_gather %7 dims [0] over @m {"data"} purpose parameter : (tensor<4xf32>) -> tensor<8xf32>
  %dx = arith.mulf %6, %8 : tensor<8xf32>
  return %y, %dx : tensor<8xf32>, tensor<8xf32>
}

// -----

dist.mesh @m <["data"=2]>

// Gradient reductions move into @reduce, including those of a tied parameter,
// whose sum over stages reads the reduced gradient. Reductions of the loss and
// of the norm stay where they are.
// CHECK-LABEL: func.func @reduce_grad(
// CHECK-SAME:    -> (tensor<4xf32> {nn.name = "reduced0", nn.role = #nn.role<residual>, pipe.slot = #pipe.slot<"reduced">},
// CHECK-SAME:        tensor<4xf32> {nn.name = "reduced1", nn.role = #nn.role<residual>, pipe.slot = #pipe.slot<"reduced">})
// CHECK:         dist.all_reduce {{.*}} purpose gradient
// CHECK-LABEL: func.func @update.0()
// CHECK-SAME:    pipe.sums = [#pipe.sum<operand = "reduced0", result = "reduced0.all", stages = [0, 1]>]
// CHECK-NEXT:    return
// CHECK-LABEL: func.func @update.1(
// CHECK-SAME:    nn.name = "loss"
// CHECK-NOT:     purpose gradient
// CHECK:         dist.all_reduce {{.*}} purpose loss
// CHECK:         dist.all_reduce {{.*}} purpose norm

// NONE-NOT:    @reduce_grad
// NONE:        func.func @update.0(
// NONE:          dist.all_reduce {{.*}} purpose gradient
func.func @update(%w: tensor<4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                  %dw: tensor<4xf32> {nn.name = "w", nn.role = #nn.role<gradient>},
                  %b: tensor<4xf32> {nn.name = "b", nn.role = #nn.role<parameter>},
                  %db: tensor<4xf32> {nn.name = "b", nn.role = #nn.role<gradient>},
                  %loss: tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>})
    -> (tensor<4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
        tensor<4xf32> {nn.name = "b", nn.role = #nn.role<parameter>},
        tensor<f32> {nn.name = "loss", nn.role = #nn.role<metric>}) {
  %0:2 = dist.all_reduce sum %dw, %db over @m {"data"} purpose gradient : tensor<4xf32>, tensor<4xf32>
  %2 = pipe.sum_stages %0#0 {stages = array<i64: 0, 1>} : tensor<4xf32>
  %1 = dist.all_reduce sum %loss over @m {"data"} purpose loss : tensor<f32>
  %square = arith.mulf %0#1, %0#1 : tensor<4xf32>
  %part = nn.reduce sum %square dims = [0] : tensor<4xf32> -> tensor<f32>
  %norm = dist.all_reduce sum %part over @m {"data"} purpose norm : tensor<f32>
  %both = arith.addf %1, %norm : tensor<f32>
  %3 = arith.subf %w, %2 : tensor<4xf32>
  %4 = arith.subf %b, %0#1 : tensor<4xf32>
  return %3, %4, %both : tensor<4xf32>, tensor<4xf32>, tensor<f32>
}
