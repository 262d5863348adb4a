// RUN: cleave-opt %s -verify-diagnostics --nn-widen

func.func @bits(%x: tensor<3xf32>) -> tensor<3xi32> {
  // expected-error @below {{'arith.bitcast' op from 'tensor<3xf32>' to 'tensor<3xi32>' has no form in f64}}
  %0 = arith.bitcast %x : tensor<3xf32> to tensor<3xi32>
  return %0 : tensor<3xi32>
}
