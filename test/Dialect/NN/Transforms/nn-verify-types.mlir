// RUN: cleave-opt %s -split-input-file -verify-diagnostics -nn-verify-types
// The check also comes before passes of other names, and before those of a text.
// RUN: cleave-opt %s -split-input-file -verify-diagnostics -nn-verify-constants
// RUN: cleave-opt %s -split-input-file -verify-diagnostics -pass-pipeline='builtin.module(func.func(cse))'
// Without passes, types are not checked.
// RUN: cleave-opt %s -split-input-file | FileCheck %s --check-prefix=PRINTED

// All types that models, commands, loops and branches have. Empty tensors are
// allowed outside of kernels.
// PRINTED: func.func @supported
func.func @supported(%x: tensor<2x0xf32>, %n: tensor<i64>, %w: tensor<3xbf16> {dist.global_type = tensor<4xbf16>}, %p: i1) -> tensor<64xi8> {
  %0 = arith.constant dense<0> : tensor<64xi8>
  %i = arith.constant 0 : index
  return %0 : tensor<64xi8>
}

// -----

// PRINTED: tensor<*xf32>
// expected-error @below {{argument 1 of @unranked: type 'tensor<*xf32>'; expected a tensor of known rank}}
func.func @unranked(%x: tensor<2xf32>, %w: tensor<*xf32>) { return }

// -----

// expected-error @below {{result 0 of @dynamic: type 'tensor<?xf32>'; expected sizes that are known before the program runs}}
func.func private @dynamic() -> tensor<?xf32>

// -----

// expected-error @below {{argument 0 of @index: type 'tensor<2xindex>'; expected elements of type f64, f32, bf16, i64, i32, i8 or i1}}
func.func @index(%x: tensor<2xindex>) { return }

// -----

func.func @complex() {
  // expected-error @below {{'arith.constant' op result 0: type 'tensor<2xcomplex<f32>>'; expected elements of type f64}}
  %0 = arith.constant dense<[(1.0,2.0), (3.0,4.0)]> : tensor<2xcomplex<f32>>
  return
}

// -----

// expected-error @below {{argument 0 of @scalar: type 'f32'; expected a tensor}}
func.func @scalar(%x: f32) { return }

// -----

// expected-error @below {{argument 0 of @integer: type 'i64'; expected a tensor}}
func.func @integer(%x: i64 {nn.name = "x", nn.role = #nn.role<input>}) { return }

// -----

// expected-error @below {{argument 0 of @memory: type 'memref<4xf32>'; expected a tensor}}
func.func @memory(%x: memref<4xf32>) { return }

// -----

// expected-error @below {{argument 0 of @large: type 'tensor<9223372036854775807x2xf32>'; expected at most 2^48 elements}}
func.func @large(%x: tensor<9223372036854775807x2xf32>) { return }

// -----

// expected-error @below {{argument 0 of @global: 'dist.global_type': type 'tensor<?xf32>'; expected sizes}}
func.func @global(%x: tensor<4xf32> {dist.global_type = tensor<?xf32>}) { return }

// -----

// expected-error @below {{argument 0 of @kernel: type 'tensor<4x0xf32>'; expected at least one element in a kernel}}
func.func private @kernel(%x: tensor<4x0xf32>) -> tensor<4x0xf32> attributes {nn.kernel} {
  %0 = arith.negf %x : tensor<4x0xf32>
  return %0 : tensor<4x0xf32>
}
