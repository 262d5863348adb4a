// RUN: cleave-opt --rt-plan-memory %s | FileCheck %s

// Stages have arenas of their own, also where names are the same; values that are
// kept between actions are in the arena for their `pipe.slot`.

// CHECK: rt.stages = [#rt.stage<arenas = [64, 0, 64, 128], slots = ["recv_f:B", "F:B"]>,
// CHECK-SAME: #rt.stage<arenas = [128, 0], slots = []>]
module {
  func.func private @k(tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  // CHECK-LABEL: func.func @F.0
  // CHECK-SAME: nn.name = "w", nn.role = #nn.role<parameter>, rt.buffer = #rt.address<0, 0>
  // CHECK-SAME: pipe.slot = #pipe.slot<"recv_f:B">, rt.buffer = #rt.address<2, 0>
  // CHECK-SAME: pipe.slot = #pipe.slot<"F:B">, rt.buffer = #rt.address<3, 0>
  // CHECK-SAME: pipe.slot = #pipe.slot<"F:B">, rt.buffer = #rt.address<3, 64>
  func.func @F.0(%w: tensor<8xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                 %x: tensor<8xf32> {nn.name = "x", nn.role = #nn.role<activation>, pipe.slot = #pipe.slot<"recv_f:B">})
      -> (tensor<8xf32> {nn.name = "r0", nn.role = #nn.role<residual>, pipe.slot = #pipe.slot<"F:B">},
          tensor<8xf32> {nn.name = "r1", nn.role = #nn.role<residual>, pipe.slot = #pipe.slot<"F:B">})
      attributes {pipe.stage = 0 : i64} {
    // CHECK: rt.launch {{.*}}rt.buffers = [#rt.address<3, 0>]
    %0 = rt.launch @k(%x, %w) extent = 8 grain = 1 : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
    // CHECK: rt.launch {{.*}}rt.buffers = [#rt.address<3, 64>]
    %1 = rt.launch @k(%0, %w) extent = 8 grain = 1 : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
    return %0, %1 : tensor<8xf32>, tensor<8xf32>
  }
  // CHECK-LABEL: func.func @F.1
  // CHECK-SAME: nn.name = "v", nn.role = #nn.role<parameter>, rt.buffer = #rt.address<0, 0>
  // CHECK-SAME: nn.name = "w", nn.role = #nn.role<parameter>, rt.buffer = #rt.address<0, 64>
  func.func @F.1(%v: tensor<8xf32> {nn.name = "v", nn.role = #nn.role<parameter>},
                 %w: tensor<8xf32> {nn.name = "w", nn.role = #nn.role<parameter>})
      attributes {pipe.stage = 1 : i64} {
    return
  }
}
