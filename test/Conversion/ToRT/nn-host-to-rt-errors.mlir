// RUN: cleave-opt %s --nn-host-to-rt -split-input-file -verify-diagnostics

func.func @left_over(%x: tensor<6xf32>) -> tensor<6xf32> {
  // expected-error @below {{'arith.addf' op cannot be compiled: it is none of those that become kernels, library calls, collectives or placements of elements; express it by operations of nn, arith and math that do}}
  %0 = arith.addf %x, %x : tensor<6xf32>
  return %0 : tensor<6xf32>
}

// -----

func.func private @f(tensor<6xf32>) -> tensor<6xf32>
func.func @no_kernel(%x: tensor<6xf32>) -> tensor<6xf32> {
  // expected-error @below {{'func.call' op calls @f, which is not a kernel with an extent}}
  %0 = func.call @f(%x) : (tensor<6xf32>) -> tensor<6xf32>
  return %0 : tensor<6xf32>
}

// -----

func.func @constant() -> tensor<2xf32> {
  // expected-error @below {{'arith.constant' op has different elements and is read by the host program; it should be part of a kernel}}
  %0 = arith.constant dense<[1.0, 2.0]> : tensor<2xf32>
  return %0 : tensor<2xf32>
}
