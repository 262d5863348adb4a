// The phases of the compiler as passes.

#ifndef CLEAVE_COMPILER_PASSES_TD
#define CLEAVE_COMPILER_PASSES_TD

include "mlir/Pass/PassBase.td"

class CleavePhase<string flag> : Pass<flag, "::mlir::ModuleOp"> {
  let options = [
    Option<"config", "config", "std::string", /*default=*/"",
           "The configuration, a file such as parallel.toml; default: none">,
    ListOption<"set", "set", "std::string",
               "Keys that override those of the file, e.g. set=mesh.data=2,train.loss=cross_entropy">,
    Option<"infers", "infer", "bool", /*default=*/"false",
           "The program is for inference: @forward alone">
  ];
}

def CleaveTrainPass : CleavePhase<"cleave-train"> {
  let summary = "Derive the training program that a configuration describes";
  let description = [{
    Does what `cleave compile --emit train` does with a model in nn IR, as one pass: it checks
    the model, marks batch dimensions, adds `@loss` beside `@forward`, and derives
    `@loss_grad`, `@update` and `@init_state`. If the mesh has a pipeline axis, the result is a
    module of modules `@stage0`, `@stage1`, ... A model that has its own `dist.mesh` is not
    changed. The keys of the configuration are those of
    [docs/configuration.md](../configuration.md).

    Before:
    ```mlir
    func.func @forward(%w: tensor<3x3xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                       %x: tensor<4x3xf32> {nn.name = "x", nn.role = #nn.role<input>},
                       %labels: tensor<4xi64> {nn.name = "labels", nn.role = #nn.role<labels>})
        -> (tensor<4x3xf32> {nn.name = "logits", nn.role = #nn.role<output>}) {
      %0 = nn.einsum "ab,bc->ac" %x, %w : tensor<4x3xf32>, tensor<3x3xf32> -> tensor<4x3xf32>
      return %0 : tensor<4x3xf32>
    }
    ```

    After `cleave-train{set=data.labels=labels,train.optimizer=sgd}`, where the new
    functions have bodies:
    ```mlir
    func.func @forward(%w: tensor<3x3xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                       %x: tensor<4x3xf32> {nn.name = "x", nn.role = #nn.role<input>},
                       %labels: tensor<4xi64> {nn.name = "labels", nn.role = #nn.role<labels>})
        -> (tensor<4x3xf32> {nn.name = "logits", nn.role = #nn.role<output>}) {
      %0 = nn.einsum "ab,bc->ac" %x, %w : tensor<4x3xf32>, tensor<3x3xf32> -> tensor<4x3xf32>
      return %0 : tensor<4x3xf32>
    }
    func.func private @loss(tensor<3x3xf32>, tensor<4x3xf32>, tensor<4xi64>, tensor<4xi64>)
        -> (tensor<f32>, tensor<f32>)
    func.func private @loss_grad(tensor<3x3xf32>, tensor<4x3xf32>, tensor<4xi64>, tensor<4xi64>)
        -> (tensor<f32>, tensor<f32>, tensor<3x3xf32>)
    func.func private @update(tensor<3x3xf32>, tensor<3x3xf32>, tensor<3x3xf32>, tensor<f32>, tensor<f32>, tensor<f32>)
        -> (tensor<3x3xf32>, tensor<3x3xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>)
    func.func private @init_state() -> tensor<3x3xf32>
    ```
  }];
}

def CleaveShardPass : CleavePhase<"cleave-shard"> {
  let summary = "Partition a program as a configuration describes";
  let description = [{
    Does what `cleave compile --emit shard` does with the result of `cleave-train`, or with a
    model of one function that has its own shardings: the strategies of the configuration shard
    parameters and inputs over the mesh, shardings propagate, and every function becomes the
    per-rank program, with collectives. The stages of a pipeline become a single module with
    the actions of all stages and the schedule.

    Before:
    ```mlir
    func.func @forward(%w: tensor<3x3xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                       %x: tensor<4x3xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>})
        -> (tensor<4x3xf32> {nn.batch_dim = 0 : i64, nn.name = "y", nn.role = #nn.role<output>}) {
      %0 = nn.einsum "ab,bc->ac" %x, %w : tensor<4x3xf32>, tensor<3x3xf32> -> tensor<4x3xf32>
      return %0 : tensor<4x3xf32>
    }
    ```

    After `cleave-shard{infer=true set=mesh.data=2}`:
    ```mlir
    dist.mesh @mesh <["data"=2]> links ["intra"]
    func.func @forward(%w: tensor<3x3xf32> {dist.global_type = tensor<3x3xf32>, dist.sharding = #dist.sharding<@mesh, [{}, {} ]>,
                                            nn.name = "w", nn.role = #nn.role<parameter>},
                       %x: tensor<2x3xf32> {dist.global_type = tensor<4x3xf32>, dist.sharding = #dist.sharding<@mesh, [{"data"}, {} ]>,
                                            nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>})
        -> (tensor<2x3xf32> {dist.global_type = tensor<4x3xf32>, dist.sharding = #dist.sharding<@mesh, [{"data"}, {} ]>,
                             nn.batch_dim = 0 : i64, nn.name = "y", nn.role = #nn.role<output>}) {
      %0 = nn.einsum "ab,bc->ac" %x, %w : tensor<2x3xf32>, tensor<3x3xf32> -> tensor<2x3xf32>
      return %0 : tensor<2x3xf32>
    }
    ```
  }];
}

#endif
