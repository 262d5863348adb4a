// Passes of the schedule phase.

#ifndef CLEAVE_SCHEDULE_PASSES_TD
#define CLEAVE_SCHEDULE_PASSES_TD

include "mlir/Pass/PassBase.td"

def OverlapPass : Pass<"rt-overlap", "::mlir::ModuleOp"> {
  let summary = "Start collectives early and end them late, so that computing hides them";
  let description = [{
    Where collectives would be waited for, commands that neither lead to them nor read
    them move in between, from near the reader (list scheduling with the order of the program as
    priority): the gradient of a matrix behind that of the input, which is sent; a branch that reads
    something else before the reader. They stay where that would not make the function faster, or would
    take more memory than below.

    Then it replays the commands of a function by the times of `cluster` with two resources,
    one that computes, in the order of the list, and one that communicates. A
    collective starts as soon as its operands are known and its turn has come: first
    those that are read soonest (parameters that ZeRO has to gather), but no earlier
    than what is still to be sent asks for; then those that nobody waits for (sums of
    gradients). It ends before its first reader, or when it is done, so that the memory
    of its operands becomes free. All ranks run one list, so they start collectives in
    one order.

    Memory: what is planned for the functions that share memory does not grow by more than
    `buffers` of a function's largest results of a collective, nor beyond `limit`; where it would, less
    is started early. What stands under a condition, tiles of a ring and rows of experts
    stay (`rt-split-async`). The `rt.overlap` of a function, also of one of a pipeline's stages that sends nothing, says what it comes to:
    modelled seconds that it computes, that it communicates, and of the latter those that
    nothing hides.

    Before:
    ```mlir
    dist.mesh @mesh <["data"=2]>
    func.func private @k(tensor<800000xf32>) -> tensor<800000xf32> attributes {nn.kernel}
    func.func @f(%x: tensor<800000xf32>, %w: tensor<400000xf32>) -> (tensor<800000xf32>, tensor<800000xf32>) {
      %0 = rt.launch @k(%x) extent = 800000 grain = 1 : (tensor<800000xf32>) -> tensor<800000xf32>
      %1 = rt.collective all_gather(%w) group = [0, 1, 2] layout = [1, 400000, 1, 0] purpose = "parameter"
        : (tensor<400000xf32>) -> tensor<800000xf32>
      %2 = rt.launch @k(%1) extent = 800000 grain = 1 : (tensor<800000xf32>) -> tensor<800000xf32>
      return %0, %2 : tensor<800000xf32>, tensor<800000xf32>
    }
    ```

    After:
    ```mlir
    dist.mesh @mesh <["data"=2]>
    func.func private @k(tensor<800000xf32>) -> tensor<800000xf32> attributes {nn.kernel}
    func.func @f(%x: tensor<800000xf32>, %w: tensor<400000xf32>) -> (tensor<800000xf32>, tensor<800000xf32>) {
      %1:2 = rt.collective all_gather(%w) group = [0, 1, 2] layout = [1, 400000, 1, 0] purpose = "parameter"
        : (tensor<400000xf32>) -> (tensor<800000xf32>, !rt.token)
      %0 = rt.launch @k(%x) extent = 800000 grain = 1 : (tensor<800000xf32>) -> tensor<800000xf32>
      %2 = rt.wait %1#1 values(%1#0) sources(%w) : (!rt.token, tensor<800000xf32>, tensor<400000xf32>) -> tensor<800000xf32>
      %3 = rt.launch @k(%2) extent = 800000 grain = 1 : (tensor<800000xf32>) -> tensor<800000xf32>
      return %0, %3 : tensor<800000xf32>, tensor<800000xf32>
    }
    ```
  }];
  let options = [
    Option<"cluster", "cluster", "std::string", "\"\"", "cluster.toml; empty: the defaults.">,
    Option<"buffers", "buffers", "int64_t", "2", "Results of collectives by which planned memory may grow.">,
    Option<"limit", "limit", "int64_t", "0", "Bytes of memory of a rank, beyond which nothing may grow; 0: any.">
  ];
}

def SplitAsyncPass : Pass<"rt-split-async", "::mlir::ModuleOp"> {
  let summary = "Start transfers where their data is ready and end them where it is read";
  let description = [{
    A permutation of tiles, or an exchange of rows, whose first reader comes after
    some computation only starts where it stands, and a `rt.wait` before that reader
    ends it: so the next tile of a ring is on its way while attention on this one is
    computed. Memory of both ends stays untouched in between. Other collectives, and
    those under a condition, end where they begin.

    Before:
    ```mlir
    func.func private @k(tensor<8xf32>) -> tensor<8xf32>
    func.func @f(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
      %0 = rt.collective permute(%x) group = [0, 1, 2] layout = [1, 8, 1, 8] purpose = "activation" {sources = array<i64: 1, 0>}
        : (tensor<8xf32>) -> tensor<8xf32>
      %1 = rt.launch @k(%x) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
      %2 = rt.launch @k(%0) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
      return %1, %2 : tensor<8xf32>, tensor<8xf32>
    }
    ```

    After:
    ```mlir
    func.func private @k(tensor<8xf32>) -> tensor<8xf32>
    func.func @f(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
      %0:2 = rt.collective permute(%x) group = [0, 1, 2] layout = [1, 8, 1, 8] purpose = "activation" {sources = array<i64: 1, 0>}
        : (tensor<8xf32>) -> (tensor<8xf32>, !rt.token)
      %1 = rt.launch @k(%x) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
      %w = rt.wait %0#1 values(%0#0) sources(%x) : (!rt.token, tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
      %2 = rt.launch @k(%w) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
      return %1, %2 : tensor<8xf32>, tensor<8xf32>
    }
    ```
  }];
}

def SchedulePass : Pass<"rt-schedule", "::mlir::ModuleOp"> {
  let summary = "Order commands so that memory is taken late";
  let description = [{
    Keeps the order of the program, which is that of the model and then of its
    derivative, but moves commands that extend no operand's life (fills, views and
    copies of arguments) down to their first reader. Collectives keep
    their order, so that all ranks, which share the list, meet in the same one.

    Before:
    ```mlir
    func.func private @k(tensor<8xf32>) -> tensor<8xf32>
    func.func @f(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
      %0 = rt.fill 0.0 : f32 : tensor<8xf32>
      %1 = rt.launch @k(%x) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
      %2 = rt.launch @k(%0) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
      return %1, %2 : tensor<8xf32>, tensor<8xf32>
    }
    ```

    After:
    ```mlir
    func.func private @k(tensor<8xf32>) -> tensor<8xf32>
    func.func @f(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
      %1 = rt.launch @k(%x) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
      %0 = rt.fill 0.0 : f32 : tensor<8xf32>
      %2 = rt.launch @k(%0) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
      return %1, %2 : tensor<8xf32>, tensor<8xf32>
    }
    ```
  }];
}

def VerifyOrderPass : Pass<"rt-verify-order", "::mlir::ModuleOp"> {
  let summary = "Prove that collectives meet and end";
  let description = [{
    All ranks run one list, so they issue collectives in one order. What is left
    to prove, and is an error otherwise: each collective that only starts is
    ended by exactly one `rt.wait`, and nothing reads its results, or overwrites
    them or its operands, before.

    Before:
    ```mlir
    func.func @f(%x: tensor<8xf32>) -> tensor<8xf32> {
      %1:2 = rt.collective all_reduce(%x) group = [0, 1, 2] layout = [1, 8, 1, 8] purpose = "gradient"
        : (tensor<8xf32>) -> (tensor<8xf32>, !rt.token)
      %2 = rt.wait %1#1 values(%1#0) sources(%x) : (!rt.token, tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
      return %2 : tensor<8xf32>
    }
    ```

    After: the same. Without the `rt.wait` it would be an error.
  }];
}

#endif
