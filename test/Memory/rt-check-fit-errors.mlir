// RUN: cleave-opt %s --rt-plan-memory --rt-check-fit=limit=128 -verify-diagnostics

// expected-error @below {{a rank needs 192 bytes, but there are 128; largest at the peak (@f, command 0): (alignment and gaps) (gap, 96) x (input, 32) y (output, 32) rt.launch (activation, 32)}}
module {
func.func private @kernel(tensor<8xf32>) -> tensor<8xf32>
func.func @f(%x: tensor<8xf32> {nn.name = "x", nn.role = "input"}) -> (tensor<8xf32> {nn.name = "y", nn.role = "output"}) {
  %0 = rt.launch @kernel(%x) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
  %1 = rt.launch @kernel(%0) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
  return %1 : tensor<8xf32>
}
}
