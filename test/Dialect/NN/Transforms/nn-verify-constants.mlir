// RUN: cleave-opt %s -split-input-file -nn-verify-constants=max-bytes=12 -verify-diagnostics

func.func @small_and_splat() -> (tensor<3xf32>, tensor<1000xf32>) {
  %0 = arith.constant dense<[1.0, 2.0, 3.0]> : tensor<3xf32>
  %1 = arith.constant dense<1.0> : tensor<1000xf32>
  return %0, %1 : tensor<3xf32>, tensor<1000xf32>
}

// -----

func.func @large() -> tensor<4xf32> {
  // expected-error @below {{constant 'tensor<4xf32>' has 16 bytes, expected at most 12; tensors of this size belong in an argument}}
  %0 = arith.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
  return %0 : tensor<4xf32>
}
