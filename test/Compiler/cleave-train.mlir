// RUN: cleave-opt %s -cleave-train=set=data.labels=labels | FileCheck %s
// RUN: cleave-opt %s -cleave-train="infer=true" | FileCheck %s --check-prefix=INFER
// RUN: cleave-opt %s -cleave-train="set=data.labels=labels,mesh.pipeline=2,train.microbatches=2" | FileCheck %s --check-prefix=STAGES
// RUN: cleave-opt %s -cleave-train="set=data.labels=labels,parallel.pipeline.schedule=gpipe" 2>&1 | FileCheck %s --check-prefix=IDLE
// RUN: not cleave-opt %s -cleave-train=set=train.los=mse 2>&1 | FileCheck %s --check-prefix=KEY
// RUN: not cleave-opt %s -cleave-train=config=%t.none.toml 2>&1 | FileCheck %s --check-prefix=FILE
// RUN: not cleave-opt %s -cleave-train=set=batch 2>&1 | FileCheck %s --check-prefix=OVERRIDE
// RUN: not cleave-opt %s -cleave-train=set=data.tokens=ids 2>&1 | FileCheck %s --check-prefix=INPUT

// CHECK: func.func @forward(
// CHECK: func.func @loss(
// CHECK: func.func @loss_grad(
// CHECK: func.func @update(
// CHECK: func.func @init_state(

// INFER: func.func @forward(
// INFER-NOT: func.func @loss

// STAGES: module @stage0
// STAGES: func.func @loss_grad(
// STAGES: module @stage1
// STAGES: func.func @loss_grad(

// IDLE: warning: parallel.pipeline.schedule does nothing
// IDLE-NOT: does nothing

// Errors are at the module, and name the options of the pass.
// KEY: cleave-train.mlir:{{[0-9:]+}} error: options of the pass (set=train.los=mse): {{.*}}did you mean 'train.loss'
// FILE: cleave-train.mlir:{{[0-9:]+}} error: options of the pass (config={{.*}}none.toml): {{.*}}none.toml: No such file or directory
// OVERRIDE: cleave-train.mlir:{{[0-9:]+}} error: option set=batch of the pass:
// INPUT: cleave-train.mlir:{{[0-9:]+}} error: model '{{.*}}cleave-train.mlir', @forward: has no input 'ids'

func.func @forward(
    %w: tensor<6x4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
    %v: tensor<4x5xf32> {nn.name = "v", nn.role = #nn.role<parameter>},
    %x: tensor<8x6xf32> {nn.name = "x", nn.role = #nn.role<input>},
    %labels: tensor<8xi64> {nn.name = "labels", nn.role = #nn.role<labels>})
    -> (tensor<8x5xf32> {nn.name = "logits", nn.role = #nn.role<output>}) {
  %0 = nn.einsum "ab,bc->ac" %x, %w : tensor<8x6xf32>, tensor<6x4xf32> -> tensor<8x4xf32>
  %1 = math.tanh %0 : tensor<8x4xf32>
  %2 = nn.einsum "ab,bc->ac" %1, %v : tensor<8x4xf32>, tensor<4x5xf32> -> tensor<8x5xf32>
  return %2 : tensor<8x5xf32>
}
