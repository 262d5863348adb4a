// RUN: cleave-opt -kernels-to-gpu -split-input-file -verify-diagnostics %s
// RUN: not cleave-opt "-kernels-to-gpu=arch=sm_1" -split-input-file %s 2>&1 | FileCheck %s --check-prefix=ARCH

// ARCH: no processor 'sm_1'; sm_80, sm_90 and sm_100 are some
func.func private @good(%x: tensor<4xf32>) -> tensor<4xf32> attributes {nn.kernel} {
  %0 = arith.negf %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// expected-error @below {{no GPU kernel can be generated: operation 'nn.einsum' is not in the vocabulary of generated kernels}}
func.func private @product(%x: tensor<4x5xf32>, %y: tensor<5x6xf32>) -> tensor<4x6xf32> attributes {nn.kernel} {
  %0 = nn.einsum "ij,jk->ik" %x, %y : tensor<4x5xf32>, tensor<5x6xf32> -> tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}

// -----

// expected-error @below {{no GPU kernel can be generated: 3000000000 rows}}
func.func private @tall(%x: tensor<3000000000x4xf32>) -> tensor<3000000000xf32> attributes {nn.kernel} {
  %0 = nn.reduce sum %x dims = [1] : tensor<3000000000x4xf32> -> tensor<3000000000xf32>
  return %0 : tensor<3000000000xf32>
}
