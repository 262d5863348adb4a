// The phases after the partitioner, as cleave-opt names them: kernels and
// library calls, commands in order, addresses.
// RUN: cleave-opt %s -pass-pipeline='builtin.module(nn-kernels-pipeline)' | FileCheck %s --check-prefix=KERNELS
// RUN: cleave-opt %s -pass-pipeline='builtin.module(nn-kernels-pipeline,rt-schedule-pipeline)' | FileCheck %s --check-prefix=COMMANDS
// RUN: cleave-opt %s -pass-pipeline='builtin.module(nn-kernels-pipeline,rt-schedule-pipeline,rt-memory-pipeline)' | FileCheck %s --check-prefix=MEMORY
// RUN: cleave-opt %s -dump-pass-pipeline -o /dev/null 2>&1 \
// RUN:   -pass-pipeline='builtin.module(nn-kernels-pipeline{device=cuda},rt-schedule-pipeline{device=cuda},rt-memory-pipeline{device=cuda})' \
// RUN:   | FileCheck %s --check-prefix=CUDA

// CUDA:      nn-select-library{device=cuda
// CUDA:      rt-add-scratch{device=cuda
// CUDA:      rt-plan-memory
// CUDA-NEXT: rt-align-kernels

// KERNELS:      rt.gemm
// KERNELS-NEXT: call @[[K:exp_[0-9]+]](
// KERNELS:      func.func private @[[K]]

// COMMANDS:     func.func @forward
// COMMANDS:     rt.gemm
// COMMANDS:     rt.launch @

// MEMORY:       rt.arenas
// MEMORY:       func.func @forward
// MEMORY-SAME:  rt.buffer
func.func @forward(%w: tensor<6x5xf32> {nn.name = "w", nn.role = #nn.role<parameter>}, %x: tensor<4x6xf32> {nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<4x5xf32> {nn.name = "y", nn.role = #nn.role<output>}) {
  %0 = nn.einsum "bi,ih->bh" %x, %w : tensor<4x6xf32>, tensor<6x5xf32> -> tensor<4x5xf32>
  %1 = math.exp %0 : tensor<4x5xf32>
  return %1 : tensor<4x5xf32>
}
