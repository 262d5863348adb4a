// RUN: cleave-opt %s -cleave-train="infer=true" -cleave-shard="infer=true set=mesh.data=2" | FileCheck %s
// RUN: cleave-opt %s -cleave-train=set=data.labels=labels,mesh.data=2 -cleave-shard=set=data.labels=labels,mesh.data=2 | FileCheck %s --check-prefix=TRAIN
// RUN: cleave-opt %s -cleave-train=set=data.labels=labels,mesh.pipeline=2,train.microbatches=2 -cleave-shard=set=data.labels=labels,mesh.pipeline=2,train.microbatches=2 | FileCheck %s --check-prefix=STAGES
// RUN: not cleave-opt %s -cleave-train=set=data.labels=labels -cleave-shard=set=data.labels=labels,mesh.pipeline=2,train.microbatches=2 2>&1 | FileCheck %s --check-prefix=UNCUT
// RUN: not cleave-opt %s -cleave-train=set=data.labels=labels,mesh.pipeline=2,train.microbatches=2 -cleave-shard=set=data.labels=labels,mesh.data=2 2>&1 | FileCheck %s --check-prefix=CUT

// UNCUT: error: the model is cut into 0 stages, but the configuration has 2; cut it with the same mesh and parallel.pipeline (cleave-train)
// CUT: error: the model is cut into the stages of a pipeline, but the configuration has no mesh.pipeline

// CHECK: dist.mesh @mesh
// CHECK-SAME: "data"=2
// CHECK: func.func @forward({{.*}}tensor<4x6xf32> {
// CHECK: return %{{.*}} : tensor<4x5xf32>

// TRAIN: func.func @loss_grad({{.*}}tensor<4x6xf32> {
// TRAIN: dist.all_reduce

// STAGES: pipe.schedule
// STAGES-DAG: func.func @F.0(
// STAGES-DAG: func.func @F.1(
// STAGES-DAG: func.func @B.0(

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
