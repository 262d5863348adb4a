// RUN: cleave-opt %s -split-input-file -verify-diagnostics -pipe-mark-stages=stages=2

func.func @loss(%x: tensor<2xf32> {nn.name = "x", nn.role = #nn.role<input>}) -> tensor<2xf32> {
  // expected-error @below {{gives 'f32', expected tensors of static shape to cut}}
  %0 = arith.constant 1.0 : f32
  return %x : tensor<2xf32>
}
