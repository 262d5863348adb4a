// RUN: cleave-opt --rt-plan-memory %s | FileCheck %s

// What a launch reads past the end of an operand belongs to no other value.

// CHECK: rt.arenas = array<i64: 192, 0>
module {
  func.func private @k(tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
  func.func @f(%x: tensor<16xf32> {nn.name = "x", nn.role = "parameter"})
      -> (tensor<16xf32> {nn.name = "z", nn.role = "output"}) {
    %0 = rt.launch @k(%x, %x) extent = 16 grain = 1 {rt.beyond = array<i64: 16, 0>}
      : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
    return %0 : tensor<16xf32>
  }
}
