// Passes that cut the functions of pipeline stages into the actions of a schedule.

#ifndef CLEAVE_ACTIONS_PASSES_TD
#define CLEAVE_ACTIONS_PASSES_TD

include "mlir/Pass/PassBase.td"

def MarkActionsPass : Pass<"pipe-mark-actions", "::mlir::ModuleOp"> {
  let summary = "Mark each collective of a pipeline stage with the action (F, I, W or B) that will run it";
  let description = [{
    Runs on the per-rank program of a pipeline stage, before collectives are merged into buckets.
    The forward pass (F), the gradients of inputs (I) and the gradients of weights (W) become
    separate actions of the pipeline schedule, which run at different times. The attribute
    `pipe.action` names the action that a collective will be part of, and prevents `dist-bucket`
    from merging collectives of different actions.

    Operations are assigned to actions by reachability. F contains the operations on which the sent
    activations and the saved values depend. I contains the operations on which the sent cotangents
    depend, except those of F. W contains all other operations. With `weights-apart = false`, I and
    W are a single action B.

    Before:
    ```mlir
    dist.mesh @m <["t"=2]>
    func.func @loss_grad(%dy: tensor<4xf32> {nn.name = "cut.0.0.grad", nn.role = #nn.role<cotangent>})
        -> (tensor<4xf32> {nn.name = "b", nn.role = #nn.role<gradient>}) {
      %0 = dist.all_reduce sum %dy over @m {"t"} purpose gradient : tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    ```

    After:
    ```mlir
    dist.mesh @m <["t"=2]>
    func.func @loss_grad(%dy: tensor<4xf32> {nn.name = "cut.0.0.grad", nn.role = #nn.role<cotangent>})
        -> (tensor<4xf32> {nn.name = "b", nn.role = #nn.role<gradient>}) {
      %0 = dist.all_reduce sum %dy over @m {"t"} purpose gradient {pipe.action = "W"} : tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    ```
  }];
  let options = [
    Option<"weightsApart", "weights-apart", "bool", "true",
           "Gradients of inputs (I) and of weights (W) are separate actions; if false, one action B">,
  ];
}

def SplitShardsPass : Pass<"pipe-split-shards", "::mlir::ModuleOp"> {
  let summary = "Move the gathers and reductions of data parallelism from the functions of a stage into actions";
  let description = [{
    Runs on the per-rank program of a stage, before `pipe-split-actions`. Collectives of
    `@loss_grad` over `axes` that only depend on parameters and constants move to `@unshard`,
    together with the operations that they depend on. The action UNSHARD calls `@unshard`. Its
    results get `pipe.slot = #pipe.slot<"unshard">`: they are stored once for all microbatches, from
    UNSHARD to RESHARD. Collectives in `@update` that only depend on gradients move to
    `@reduce_grad`, which the action REDUCE_GRAD calls. Parameters should be gathered once in
    `@loss_grad` (see `keep-parameters` of `nn-choose-residuals`): an all-gather that depends on
    values of the backward pass stays in `@loss_grad`.

    Before:
    ```mlir
    dist.mesh @m <["data"=2]>
    func.func @loss_grad(%w: tensor<4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                         %x: tensor<8xf32> {nn.name = "cut.0.0", nn.role = #nn.role<activation>})
        -> (tensor<8xf32> {nn.name = "cut.1.0", nn.role = #nn.role<activation>}) {
      %0 = dist.all_gather %w dims [0] over @m {"data"} purpose parameter : (tensor<4xf32>) -> tensor<8xf32>
      %1 = arith.mulf %0, %x : tensor<8xf32>
      return %1 : tensor<8xf32>
    }
    ```

    After, with `axes=data`:
    ```mlir
    dist.mesh @m <["data"=2]>
    func.func @unshard(%w: tensor<4xf32> {nn.name = "w", nn.role = #nn.role<parameter>})
        -> (tensor<8xf32> {nn.name = "gathered0", nn.role = #nn.role<residual>, pipe.slot = #pipe.slot<"unshard">}) {
      %0 = dist.all_gather %w dims [0] over @m {"data"} purpose parameter : (tensor<4xf32>) -> tensor<8xf32>
      return %0 : tensor<8xf32>
    }
    func.func @loss_grad(%x: tensor<8xf32> {nn.name = "cut.0.0", nn.role = #nn.role<activation>},
                         %0: tensor<8xf32> {nn.name = "gathered0", nn.role = #nn.role<residual>, pipe.slot = #pipe.slot<"unshard">})
        -> (tensor<8xf32> {nn.name = "cut.1.0", nn.role = #nn.role<activation>}) {
      %1 = arith.mulf %0, %x : tensor<8xf32>
      return %1 : tensor<8xf32>
    }
    ```
  }];
  let options = [
    Option<"unshard", "unshard", "bool", "true", "Move gathers of parameters to the action UNSHARD.">,
    Option<"reduce", "reduce", "bool", "true", "Move reductions of gradients to the action REDUCE_GRAD.">,
    ListOption<"axes", "axes", "std::string", "Mesh axes over which UNSHARD gathers parameters.">,
  ];
  let dependentDialects = ["::mlir::func::FuncDialect", "::cleave::pipe::PipeDialect"];
}

def SplitActionsPass : Pass<"pipe-split-actions", "::mlir::ModuleOp"> {
  let summary = "Cut the functions of a stage into the actions of a schedule";
  let description = [{
    Runs on the per-rank program of a stage. `@loss_grad` becomes `@F`, `@I` and `@W` (see
    `pipe-mark-actions`; with `weights-apart = false`, `@F` and `@B`), and `@load`, which stores the
    inputs of a microbatch until its forward and backward passes run. `@update` is cut after each
    `pipe.sum_stages` into `@update.0`, `@update.1`, ... A value that one action computes and
    another reads becomes a result and an argument of role `residual`. A value that is stored
    between actions, once for every microbatch in flight, has `pipe.slot = #pipe.slot<"first:last">`
    where `first` is the event after which it is stored and `last` the event that reads it last.
    Constants are rematerialized where they are read.

    Before:
    ```mlir
    func.func @loss_grad(%w: tensor<4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                         %x: tensor<4xf32> {nn.name = "cut.0.0", nn.role = #nn.role<activation>},
                         %dy: tensor<4xf32> {nn.name = "cut.1.0.grad", nn.role = #nn.role<cotangent>})
        -> (tensor<4xf32> {nn.name = "cut.1.0", nn.role = #nn.role<activation>},
            tensor<4xf32> {nn.name = "cut.0.0.grad", nn.role = #nn.role<cotangent>},
            tensor<4xf32> {nn.name = "w", nn.role = #nn.role<gradient>}) {
      %y = arith.mulf %x, %w : tensor<4xf32>
      %dx = arith.mulf %dy, %w : tensor<4xf32>
      %dw = arith.mulf %dy, %x : tensor<4xf32>
      return %y, %dx, %dw : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
    }
    ```

    After:
    ```mlir
    func.func @F(%w: tensor<4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                 %x: tensor<4xf32> {nn.name = "cut.0.0", nn.role = #nn.role<activation>, pipe.slot = #pipe.slot<"recv_f:W">})
        -> (tensor<4xf32> {nn.name = "cut.1.0", nn.role = #nn.role<activation>, pipe.slot = #pipe.slot<"F:send_f">}) {
      %y = arith.mulf %x, %w : tensor<4xf32>
      return %y : tensor<4xf32>
    }
    func.func @I(%w: tensor<4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                 %dy: tensor<4xf32> {nn.name = "cut.1.0.grad", nn.role = #nn.role<cotangent>, pipe.slot = #pipe.slot<"recv_b:W">})
        -> (tensor<4xf32> {nn.name = "cut.0.0.grad", nn.role = #nn.role<cotangent>, pipe.slot = #pipe.slot<"I:send_b">}) {
      %dx = arith.mulf %dy, %w : tensor<4xf32>
      return %dx : tensor<4xf32>
    }
    func.func @W(%x: tensor<4xf32> {nn.name = "cut.0.0", nn.role = #nn.role<activation>, pipe.slot = #pipe.slot<"recv_f:W">},
                 %dy: tensor<4xf32> {nn.name = "cut.1.0.grad", nn.role = #nn.role<cotangent>, pipe.slot = #pipe.slot<"recv_b:W">})
        -> (tensor<4xf32> {nn.name = "w", nn.role = #nn.role<gradient>}) {
      %dw = arith.mulf %dy, %x : tensor<4xf32>
      return %dw : tensor<4xf32>
    }
    ```
  }];
  let options = [
    Option<"weightsApart", "weights-apart", "bool", "true",
           "Gradients of inputs (I) and of weights (W) are separate actions; if false, one action B">,
    Option<"chained", "chained", "bool", "false",
           "Several stages are on one rank: in a sum over stages, each adds its term to the sum so far">,
    Option<"versions", "versions", "bool", "false",
           "Store several versions of the parameters, because microbatches in flight read different ones">,
  ];
  let dependentDialects = ["::mlir::func::FuncDialect", "::mlir::arith::ArithDialect",
                           "::cleave::pipe::PipeDialect"];
}

#endif
