// RUN: cleave-opt %s --rt-plan-memory --rt-check-fit=limit=192 | FileCheck %s

// CHECK: rt.arenas = array<i64: 128, 64>
func.func private @one(tensor<8xf32>) -> tensor<8xf32>
func.func @f(%x: tensor<8xf32> {nn.name = "x", nn.role = #nn.role<input>}) -> (tensor<8xf32> {nn.name = "y", nn.role = #nn.role<output>}) {
  %0 = rt.launch @one(%x) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
  %1 = rt.launch @one(%0) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
  return %1 : tensor<8xf32>
}
