// RUN: not cleave-opt %s --rt-add-scratch --canonicalize --split-input-file 2>/dev/null | FileCheck %s
// RUN: cleave-opt %s --rt-add-scratch=device=cuda --split-input-file | FileCheck %s --check-prefix=CUDA
// RUN: not cleave-opt %s --rt-add-scratch=device=tpu 2>&1 | FileCheck %s --check-prefix=NONE

// NONE: Cannot find option named 'tpu'

// CHECK-LABEL: func @f
// CHECK:         %[[C:.+]]:2 = rt.attention_grad
// CHECK-SAME:      into [0, 0, 0]
// CHECK-SAME:      -> (tensor<2x5x3x3x4xf32>, tensor<{{[0-9]+}}xi8>)
// CHECK:         return %[[C]]#0
func.func @f(%do: tensor<2x5x3x4xf32>, %qkv: tensor<2x5x3x3x4xf32>, %o: tensor<2x5x3x4xf32>, %lse: tensor<2x3x5xf32>)
    -> tensor<2x5x3x3x4xf32> {
  %d = rt.attention_grad do(%do) q(%qkv) k(%qkv) v(%qkv) o(%o) lse(%lse) sizes = [2, 5, 5, 3, 1, 4, 4] scale = 0.5 into [0, 0, 0]
    {causal, do_view = array<i64: 0, 60, 12, 4, 4, 1>, q_view = array<i64: 0, 180, 36, 4, 4, 1>,
     k_view = array<i64: 12, 180, 36, 4, 0, 1>, v_view = array<i64: 24, 180, 36, 4, 0, 1>,
     o_view = array<i64: 0, 60, 12, 4, 4, 1>, lse_view = array<i64: 0, 15, 1, 5, 5, 0>,
     dq_view = array<i64: 0, 180, 36, 4, 4, 1>, dk_view = array<i64: 12, 180, 36, 4, 0, 1>, dv_view = array<i64: 24, 180, 36, 4, 0, 1>}
    : (tensor<2x5x3x4xf32>, tensor<2x5x3x3x4xf32>, tensor<2x5x3x3x4xf32>, tensor<2x5x3x3x4xf32>, tensor<2x5x3x4xf32>, tensor<2x3x5xf32>)
    -> tensor<2x5x3x3x4xf32>
  return %d : tensor<2x5x3x3x4xf32>
}

// A CUDA device sorts the rows into tables, so it needs scratch for any thread count.

// CUDA-LABEL: func @rows
// CUDA:         rt.grouped_gemm {{.+}} -> (tensor<5x8xf32>, tensor<{{[0-9]+}}xi8>)
func.func @rows(%x: tensor<5x6xf32>, %w: tensor<4x6x8xf32>, %ids: tensor<5xi64>) -> tensor<5x8xf32> {
  %0 = rt.grouped_gemm %x [0, 6, 1] %w [0, 48, 8, 1] ids %ids [0, 1] into [0, 8, 1] rows = [5] e = 4 k = 6 n = 8
    : (tensor<5x6xf32>, tensor<4x6x8xf32>, tensor<5xi64>) -> tensor<5x8xf32>
  return %0 : tensor<5x8xf32>
}

// cuDNN engines may need copies of all arrays in channels-last layout. CPUs have
// no such command.

// RUN: not cleave-opt %s --rt-add-scratch --split-input-file 2>&1 | FileCheck %s --check-prefix=CPU
// CPU: error: 'rt.conv' op is not supported by the runtime's library: only CUDA devices have it

// -----

// CUDA-LABEL: func @conv
// CUDA:         rt.conv forward {{.+}} -> (tensor<2x4x8xbf16>, tensor<{{[0-9]+}}xi8>)
// CUDA:         rt.conv forward {{.+}} -> tensor<2x4x8xf64>
func.func @conv(%x: tensor<2x3x8xbf16>, %w: tensor<4x3x3xbf16>, %x64: tensor<2x3x8xf64>, %w64: tensor<4x3x3xf64>)
    -> (tensor<2x4x8xbf16>, tensor<2x4x8xf64>) {
  %0 = rt.conv forward %x, %w strides = [1] dilations = [1] low = [1] high = [1] groups = 1
    : (tensor<2x3x8xbf16>, tensor<4x3x3xbf16>) -> tensor<2x4x8xbf16>
  %1 = rt.conv forward %x64, %w64 strides = [1] dilations = [1] low = [1] high = [1] groups = 1
    : (tensor<2x3x8xf64>, tensor<4x3x3xf64>) -> tensor<2x4x8xf64>
  return %0, %1 : tensor<2x4x8xbf16>, tensor<2x4x8xf64>
}
