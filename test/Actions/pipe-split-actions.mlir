// RUN: cleave-opt --pipe-split-actions %s -split-input-file | FileCheck %s
// RUN: cleave-opt --pipe-split-actions=weights-apart=false %s -split-input-file | FileCheck %s --check-prefix=TWO
// RUN: cleave-opt --pipe-split-actions=versions %s -split-input-file | FileCheck %s --check-prefix=VERSIONS

// A stage in the middle: activations in and out, a saved value that W alone
// reads, an input of the microbatch, an accumulated gradient.

// CHECK-LABEL: func.func @load
// CHECK-SAME: (%[[MASK:.*]]: tensor<4xf32> {nn.name = "mask", nn.role = #nn.role<input>})
// CHECK-SAME: -> (tensor<4xf32> {nn.name = "mask.stored", nn.role = #nn.role<residual>, pipe.slot = #pipe.slot<"store">})
// CHECK: return %[[MASK]]

// CHECK-LABEL: func.func @F
// CHECK-SAME: nn.name = "w", nn.role = #nn.role<parameter>}
// CHECK-SAME: nn.name = "cut.0.0", nn.role = #nn.role<activation>, pipe.slot = #pipe.slot<"recv_f:F">}
// CHECK-SAME: nn.name = "mask.slot", nn.role = #nn.role<residual>, pipe.slot = #pipe.slot<"F:I">}
// CHECK-SAME: -> (tensor<4xf32> {nn.name = "cut.1.0", nn.role = #nn.role<activation>, pipe.slot = #pipe.slot<"F:send_f">}
// CHECK-SAME: tensor<4xf32> {nn.name = "r0", nn.role = #nn.role<residual>, pipe.slot = #pipe.slot<"F:W">})

// CHECK-LABEL: func.func @I
// CHECK-SAME: nn.name = "w", nn.role = #nn.role<parameter>}
// CHECK-SAME: nn.name = "mask.slot", nn.role = #nn.role<residual>, pipe.slot = #pipe.slot<"F:I">}
// CHECK-SAME: nn.name = "cut.1.0.grad", nn.role = #nn.role<cotangent>, pipe.slot = #pipe.slot<"recv_b:W">}
// CHECK-SAME: -> (tensor<4xf32> {nn.name = "cut.0.0.grad", nn.role = #nn.role<cotangent>, pipe.slot = #pipe.slot<"I:send_b">})

// CHECK-LABEL: func.func @W
// CHECK-SAME: nn.name = "cut.1.0.grad", nn.role = #nn.role<cotangent>, pipe.slot = #pipe.slot<"recv_b:W">}
// CHECK-SAME: nn.name = "w", nn.role = #nn.role<gradient>}
// CHECK-SAME: nn.name = "r0", nn.role = #nn.role<residual>, pipe.slot = #pipe.slot<"F:W">}
// CHECK-SAME: -> (tensor<4xf32> {nn.name = "w", nn.role = #nn.role<gradient>})
// A constant is made where it is read.
// CHECK: arith.constant

// TWO-LABEL: func.func @B
// TWO-SAME: nn.name = "cut.1.0.grad", nn.role = #nn.role<cotangent>, pipe.slot = #pipe.slot<"recv_b:B">}
// TWO-SAME: nn.name = "r0", nn.role = #nn.role<residual>, pipe.slot = #pipe.slot<"F:B">}
// TWO-SAME: -> (tensor<4xf32> {nn.name = "cut.0.0.grad", nn.role = #nn.role<cotangent>, pipe.slot = #pipe.slot<"B:send_b">}
// TWO-SAME: tensor<4xf32> {nn.name = "w", nn.role = #nn.role<gradient>})
// TWO-NOT: func.func @W

// The parameter, but not its gradient, has a copy (`pipe.slot`) for each version.
// VERSIONS-LABEL: func.func @F
// VERSIONS-SAME: nn.name = "w", nn.role = #nn.role<parameter>, pipe.slot = #pipe.slot<"version">}
// VERSIONS-LABEL: func.func @W
// VERSIONS-SAME: -> (tensor<4xf32> {nn.name = "w", nn.role = #nn.role<gradient>})
func.func @loss_grad(%w: tensor<4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                     %x: tensor<4xf32> {nn.name = "cut.0.0", nn.role = #nn.role<activation>},
                     %mask: tensor<4xf32> {nn.name = "mask", nn.role = #nn.role<input>},
                     %dy: tensor<4xf32> {nn.name = "cut.1.0.grad", nn.role = #nn.role<cotangent>},
                     %sum: tensor<4xf32> {nn.name = "w", nn.role = #nn.role<gradient>})
    -> (tensor<4xf32> {nn.name = "cut.1.0", nn.role = #nn.role<activation>},
        tensor<4xf32> {nn.name = "cut.0.0.grad", nn.role = #nn.role<cotangent>},
        tensor<4xf32> {nn.name = "w", nn.role = #nn.role<gradient>}) {
  %two = arith.constant dense<2.0> : tensor<4xf32>
  %masked = arith.mulf %x, %mask : tensor<4xf32>
  %kept = nn.save %masked : tensor<4xf32>
  %y = arith.mulf %masked, %w : tensor<4xf32>
  %doubled = arith.mulf %y, %two : tensor<4xf32>
  %dmasked = arith.mulf %dy, %w : tensor<4xf32>
  %dx = arith.mulf %dmasked, %mask : tensor<4xf32>
  %d = arith.mulf %dy, %two : tensor<4xf32>
  %dw = arith.mulf %d, %kept : tensor<4xf32>
  %new = arith.addf %sum, %dw : tensor<4xf32>
  return %doubled, %dx, %new : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// Evaluation has a `pipe.slot` of its own, though names are those of training.
// CHECK-LABEL: func.func @loss
// CHECK-SAME: nn.name = "loss:cut.0.0", nn.role = #nn.role<activation>, pipe.slot = #pipe.slot<"eval">}
// CHECK-SAME: -> (tensor<4xf32> {nn.name = "loss:cut.1.0", nn.role = #nn.role<activation>, pipe.slot = #pipe.slot<"eval">})
func.func @loss(%x: tensor<4xf32> {nn.name = "cut.0.0", nn.role = #nn.role<activation>})
    -> (tensor<4xf32> {nn.name = "cut.1.0", nn.role = #nn.role<activation>}) {
  return %x : tensor<4xf32>
}

// -----

// A tap asks for nothing to be computed earlier: it comes from the part that has
// its value.

// CHECK-LABEL: func.func @F
// CHECK-SAME: -> (tensor<4xf32> {nn.name = "forward", nn.role = #nn.role<tap>}, tensor<4xf32> {nn.name = "cut.1.0"
// CHECK-LABEL: func.func @I
// CHECK-SAME: -> (tensor<4xf32> {nn.name = "back", nn.role = #nn.role<tap>}, tensor<4xf32> {nn.name = "cut.0.0.grad"
// CHECK-LABEL: func.func @W
// CHECK-SAME: -> (tensor<4xf32> {nn.name = "w", nn.role = #nn.role<gradient>})
func.func @loss_grad(%w: tensor<4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                     %x: tensor<4xf32> {nn.name = "cut.0.0", nn.role = #nn.role<activation>},
                     %dy: tensor<4xf32> {nn.name = "cut.1.0.grad", nn.role = #nn.role<cotangent>})
    -> (tensor<4xf32> {nn.name = "forward", nn.role = #nn.role<tap>},
        tensor<4xf32> {nn.name = "cut.1.0", nn.role = #nn.role<activation>},
        tensor<4xf32> {nn.name = "back", nn.role = #nn.role<tap>},
        tensor<4xf32> {nn.name = "cut.0.0.grad", nn.role = #nn.role<cotangent>},
        tensor<4xf32> {nn.name = "w", nn.role = #nn.role<gradient>}) {
  %half = arith.mulf %x, %w : tensor<4xf32>
  %y = arith.negf %half : tensor<4xf32>
  %minus = arith.negf %dy : tensor<4xf32>
  %dx = arith.mulf %minus, %w : tensor<4xf32>
  %dw = arith.mulf %minus, %x : tensor<4xf32>
  return %half, %y, %minus, %dx, %dw
      : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// -----

// A condition is known wherever operations of it are: its flag is kept.

// CHECK-LABEL: func.func @F
// CHECK-SAME: tensor<1xi1> {nn.name = "r{{[0-9]+}}", nn.role = #nn.role<residual>, pipe.slot = #pipe.slot<"F:W">}
// CHECK: dist.condition %{{.*}} number 0
// CHECK: arith.mulf %{{.*}} {nn.when = 0 : i64}
// CHECK-LABEL: func.func @I
// CHECK: dist.condition %{{.*}} number 0
// CHECK-NEXT: arith.mulf %{{.*}} {nn.when = 0 : i64}
// CHECK-LABEL: func.func @W
// CHECK: dist.condition %{{.*}} number 0
// CHECK-NEXT: arith.mulf %{{.*}} {nn.when = 0 : i64}
func.func @loss_grad(%w: tensor<4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                     %x: tensor<4xf32> {nn.name = "cut.0.0", nn.role = #nn.role<activation>},
                     %n: tensor<1xi64> {nn.name = "n", nn.role = #nn.role<input>},
                     %dy: tensor<4xf32> {nn.name = "cut.1.0.grad", nn.role = #nn.role<cotangent>})
    -> (tensor<4xf32> {nn.name = "cut.1.0", nn.role = #nn.role<activation>},
        tensor<4xf32> {nn.name = "cut.0.0.grad", nn.role = #nn.role<cotangent>},
        tensor<4xf32> {nn.name = "w", nn.role = #nn.role<gradient>}) {
  %zero = arith.constant dense<0> : tensor<1xi64>
  %flag = arith.cmpi sgt, %n, %zero : tensor<1xi64>
  dist.condition %flag number 0 : tensor<1xi1>
  %y = arith.mulf %x, %w {nn.when = 0 : i64} : tensor<4xf32>
  %kept = nn.save %x : tensor<4xf32>
  %one = nn.reshape %flag : tensor<1xi1> -> tensor<i1>
  %spread = nn.broadcast %one dims = [] : tensor<i1> -> tensor<4xi1>
  %out = arith.select %spread, %y, %x : tensor<4xi1>, tensor<4xf32>
  %dx = arith.mulf %dy, %w {nn.when = 0 : i64} : tensor<4xf32>
  %dw = arith.mulf %dy, %kept {nn.when = 0 : i64} : tensor<4xf32>
  return %out, %dx, %dw : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// -----

// A residual does not get the name of a parameter.
// CHECK-LABEL: func.func @F
// CHECK-SAME: nn.name = "r0", nn.role = #nn.role<parameter>}
// CHECK-SAME: nn.name = "r1", nn.role = #nn.role<residual>, pipe.slot = #pipe.slot<"F:W">}
func.func @loss_grad(%w: tensor<4xf32> {nn.name = "r0", nn.role = #nn.role<parameter>},
                     %x: tensor<4xf32> {nn.name = "cut.0.0", nn.role = #nn.role<activation>},
                     %dy: tensor<4xf32> {nn.name = "cut.1.0.grad", nn.role = #nn.role<cotangent>})
    -> (tensor<4xf32> {nn.name = "cut.1.0", nn.role = #nn.role<activation>},
        tensor<4xf32> {nn.name = "r0", nn.role = #nn.role<gradient>}) {
  %twice = arith.addf %x, %x : tensor<4xf32>
  %kept = nn.save %twice : tensor<4xf32>
  %y = arith.mulf %twice, %w : tensor<4xf32>
  %dw = arith.mulf %dy, %kept : tensor<4xf32>
  return %y, %dw : tensor<4xf32>, tensor<4xf32>
}
