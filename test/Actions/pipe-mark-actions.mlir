// RUN: cleave-opt --pipe-mark-actions %s | FileCheck %s
// RUN: cleave-opt --pipe-mark-actions=weights-apart=false %s | FileCheck %s --check-prefix=TWO

// F computes the activations sent forward, I (or B) the outgoing cotangent, W the rest.

dist.mesh @m <["t"=2]>

// CHECK-LABEL: @loss_grad
// TWO-LABEL: @loss_grad
func.func @loss_grad(%w: tensor<4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                     %x: tensor<4xf32> {nn.name = "cut.0.0", nn.role = #nn.role<activation>},
                     %dy: tensor<4xf32> {nn.name = "cut.1.0.grad", nn.role = #nn.role<cotangent>})
    -> (tensor<4xf32> {nn.name = "cut.1.0", nn.role = #nn.role<activation>},
        tensor<4xf32> {nn.name = "cut.0.0.grad", nn.role = #nn.role<cotangent>},
        tensor<4xf32> {nn.name = "w", nn.role = #nn.role<gradient>}) {
  %p = arith.mulf %x, %w : tensor<4xf32>
  // CHECK: dist.all_reduce {{.*}}pipe.action = "F"
  // TWO: dist.all_reduce {{.*}}pipe.action = "F"
  %y = dist.all_reduce sum %p over @m {"t"} purpose activation : tensor<4xf32>
  // CHECK: dist.all_reduce {{.*}}pipe.action = "I"
  // TWO: dist.all_reduce {{.*}}pipe.action = "B"
  %s = dist.all_reduce sum %dy over @m {"t"} purpose activation : tensor<4xf32>
  %dx = arith.mulf %s, %w : tensor<4xf32>
  // Computing a saved residual belongs to F, though only W reads it.
  // CHECK: dist.all_reduce {{.*}}pipe.action = "F"
  // TWO: dist.all_reduce {{.*}}pipe.action = "F"
  %z = dist.all_reduce sum %x over @m {"t"} purpose activation : tensor<4xf32>
  %kept = nn.save %z : tensor<4xf32>
  %q = arith.mulf %dy, %kept : tensor<4xf32>
  // CHECK: dist.all_reduce {{.*}}pipe.action = "W"
  // TWO: dist.all_reduce {{.*}}pipe.action = "B"
  %dw = dist.all_reduce sum %q over @m {"t"} purpose gradient : tensor<4xf32>
  return %y, %dx, %dw : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
