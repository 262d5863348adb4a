// RUN: cleave-opt %s -split-input-file -nn-form-kernels -verify-diagnostics

func.func @empty(%x: tensor<4x6xf32>) -> tensor<4xf32> {
  // expected-error @below {{gives 'tensor<4x0xf32>', which has no elements; expected sizes of at least 1 in every dimension}}
  %0 = nn.slice %x [0, 0] [4, 0] [1, 1] : tensor<4x6xf32> -> tensor<4x0xf32>
  %1 = math.tanh %0 : tensor<4x0xf32>
  %2 = nn.reduce sum %1 dims = [1] : tensor<4x0xf32> -> tensor<4xf32>
  return %2 : tensor<4xf32>
}
