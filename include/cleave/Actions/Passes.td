// Passes that cut the programs of pipeline stages into actions.

#ifndef CLEAVE_ACTIONS_PASSES_TD
#define CLEAVE_ACTIONS_PASSES_TD

include "mlir/Pass/PassBase.td"

def MarkActionsPass : Pass<"pipe-mark-actions", "::mlir::ModuleOp"> {
  let summary = "Note on collectives which action of their stage they belong to";
  let description = [{
    Runs on the local program of a stage, before messages are merged: `pipe.action`
    keeps `dist-bucket` from joining a message of the forward pass, of the input
    gradient and of the weight gradients (F, I, W), which run at different times.

    By reachability: F is what the values that leave the stage forward and the
    saved ones need; I what the outgoing cotangents need, less F; W the rest.
    `weights-apart = false` makes no difference between I and W (B).

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
    Option<"weightsApart", "weights-apart", "bool", "true", "I and W are actions of their own">,
  ];
}

def SplitShardsPass : Pass<"pipe-split-shards", "::mlir::ModuleOp"> {
  let summary = "Cut what data parallelism gathers and reduces out of the functions of a stage";
  let description = [{
    Runs on the local program of a stage, before `pipe-split-actions`. Collectives
    over `axes` of `@loss_grad` that depend on parameters and constants alone, and
    what they read, become `@unshard`, which the action UNSHARD calls; what they
    give lies in the slot `unshard`, one for all microbatches. Collectives of
    `@update` for gradients that depend on gradients alone become `@reduce_grad`, which
    REDUCE_GRAD calls. Which those are is a question of reachability. Parameters
    should be gathered once in `@loss_grad` (see `keep-parameters` of
    `nn-choose-residuals`): what waits for the backward pass stays there.

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
    Option<"unshard", "unshard", "bool", "true", "Gathers of parameters are an action.">,
    Option<"reduce", "reduce", "bool", "true", "Reductions of gradients are an action.">,
    ListOption<"axes", "axes", "std::string", "The axes over which parameters are gathered there.">,
  ];
  let dependentDialects = ["::mlir::func::FuncDialect", "::cleave::pipe::PipeDialect"];
}

def SplitActionsPass : Pass<"pipe-split-actions", "::mlir::ModuleOp"> {
  let summary = "Cut the functions of a stage into the actions of a schedule";
  let description = [{
    Runs on the local program of a stage. `@loss_grad` becomes `@F`, `@I` and `@W` (see
    `pipe-mark-actions`; with `weights-apart = false`, `@F` and `@B`), and `@load`, which
    keeps the inputs of a microbatch until its turn comes. `@update` is cut behind
    each `pipe.sum_stages` into `@update.0`, `@update.1`, ... What one action computes
    and another reads becomes a result and an argument of role `residual`. Whatever
    lives between actions, once for every microbatch that is under way, has
    `pipe.slot = #pipe.slot<"first:last">`: the events between which it must be kept. Constants
    are made again where they are read.

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
    Option<"weightsApart", "weights-apart", "bool", "true", "I and W are actions of their own">,
    Option<"chained", "chained", "bool", "false",
           "A rank has several stages: each adds what it gives to a sum over stages to what the one before gave">,
    Option<"versions", "versions", "bool", "false",
           "Parameters lie in slots of class `version`: microbatches that are under way read different ones">,
  ];
  let dependentDialects = ["::mlir::func::FuncDialect", "::mlir::arith::ArithDialect",
                           "::cleave::pipe::PipeDialect"];
}

#endif
