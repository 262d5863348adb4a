// RUN: cleave-opt %s --rt-plan-memory "--rt-check-fit=limit=128 batch=4" -verify-diagnostics

// expected-error @below {{a rank needs 192 B, but there are 128 B (inputs and outputs 64 B, activations 32 B): dims.batch = 2 is likely to fit; or use more train.microbatches, parallel.data.zero or mesh.tensor; largest at the peak (@f, command 0): (alignment and gaps) (gap, 96 B) x (input, 32 B) y (output, 32 B) rt.launch (activation, 32 B)}}
module {
func.func private @kernel(tensor<8xf32>) -> tensor<8xf32>
func.func @f(%x: tensor<8xf32> {nn.name = "x", nn.role = #nn.role<input>}) -> (tensor<8xf32> {nn.name = "y", nn.role = #nn.role<output>}) {
  %0 = rt.launch @kernel(%x) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
  %1 = rt.launch @kernel(%0) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
  return %1 : tensor<8xf32>
}
}
