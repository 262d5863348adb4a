// RUN: cleave-opt %s --rt-align-kernels --verify-diagnostics

func.func private @k(tensor<8xf32>) -> tensor<8xf32>
func.func @f(%x: tensor<8xf32> {nn.name = "x", nn.role = #nn.role<input>}) {
  // expected-error @below {{has no planned memory; run rt-plan-memory first}}
  %0 = rt.launch @k(%x) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
  return
}
