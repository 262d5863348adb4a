// RUN: not cleave-opt %s -pipe-mark-stages=stages=0 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: not cleave-opt %s -pipe-mark-stages=stages=9 2>&1 | FileCheck %s --check-prefix=MANY
// RUN: not cleave-opt %s -pipe-mark-stages="stages=3 patterns=h\.0,h\.1" 2>&1 | FileCheck %s --check-prefix=COUNT
// RUN: not cleave-opt %s -pipe-mark-stages="stages=2 patterns=h\.0,h\.2" 2>&1 | FileCheck %s --check-prefix=NOTHING
// RUN: not cleave-opt %s -pipe-mark-stages="stages=2 patterns=h\.0,h\.(" 2>&1 | FileCheck %s --check-prefix=MALFORMED
// RUN: not cleave-opt %s -pipe-mark-stages="stages=2 patterns=h\.1,h\.0" 2>&1 | FileCheck %s --check-prefix=ORDER
// RUN: not cleave-opt %s -pipe-mark-stages="stages=4 patterns=h.*,h.*,h.*,h.*" 2>&1 | FileCheck %s --check-prefix=FEW
// RUN: not cleave-opt %s -pipe-mark-stages="stages=2 cluster=%t.missing" 2>&1 | FileCheck %s --check-prefix=CLUSTER
// RUN: echo "" | not cleave-opt -pipe-mark-stages=stages=2 2>&1 | FileCheck %s --check-prefix=EMPTY

// NONE: cannot be cut into 0 stages, expected at least 1
// MANY: has 2 cut points, which make at most 3 stages, but 9 are asked for
// COUNT: parallel.pipeline.stages has 2 patterns, expected 3, one for each stage
// NOTHING: stage 1: pattern 'h\.2' of parallel.pipeline.stages matches no node, and matches none of the 2 parameters: 'h.0.weight', 'h.1.weight'
// MALFORMED: pattern 'h\.(' of stage 1 (parallel.pipeline.stages) is malformed
// ORDER: stage 1: pattern 'h\.0' of parallel.pipeline.stages matches 'h.0.weight', which is computed between operations of stage 0
// FEW: has 3 operations that could be a stage, but 4 stages are asked for
// CLUSTER: .missing
// EMPTY: has no function @loss or @forward to cut into stages

func.func @loss(%w0: tensor<64x64xf32> {nn.name = "h.0.weight", nn.role = #nn.role<parameter>},
                %w1: tensor<64x64xf32> {nn.name = "h.1.weight", nn.role = #nn.role<parameter>},
                %x: tensor<8x64xf32> {nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
  %0 = nn.einsum "bi,io->bo" %x, %w0 : tensor<8x64xf32>, tensor<64x64xf32> -> tensor<8x64xf32>
  %1 = nn.einsum "bi,io->bo" %0, %w1 : tensor<8x64xf32>, tensor<64x64xf32> -> tensor<8x64xf32>
  %2 = nn.reduce sum %1 dims = [0, 1] : tensor<8x64xf32> -> tensor<f32>
  %one = arith.constant dense<1.0> : tensor<f32>
  return %2, %one : tensor<f32>, tensor<f32>
}
