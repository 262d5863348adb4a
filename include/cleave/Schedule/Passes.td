// Passes of the schedule phase.

#ifndef CLEAVE_SCHEDULE_PASSES_TD
#define CLEAVE_SCHEDULE_PASSES_TD

include "mlir/Pass/PassBase.td"

def OverlapPass : Pass<"rt-overlap", "::mlir::ModuleOp"> {
  let summary = "Overlap collectives with compute";
  let description = [{
    First, the pass finds the places where the function would wait for a
    collective, and moves other commands there, so that they run during the wait
    (list scheduling with program order as priority). The moved commands are
    taken from shortly before or shortly after the first command that reads the
    collective's result. A command is moved only if it does not depend on the
    collective and the collective does not depend on it. For example, a weight
    gradient moves after the input gradient, so that it overlaps the all-reduce
    of the input gradient. Commands are moved back if the function does not
    become faster, or if it takes more memory than allowed below.

    Then the pass simulates the commands of a function by the times of `cluster`
    with two resources: one executes computation, in the order of the list, and
    one executes collectives. A collective starts when its operands are
    available and its turn has come. Collectives with the nearest reader come
    first (all-gathers of ZeRO parameters), but they do not start earlier than
    necessary to complete all pending collectives in time. Collectives whose
    results no command reads soon (all-reduces of gradients) come last. The wait
    of a collective is placed before its first reader, or earlier, where the
    simulation completes the collective, if this frees the memory of its
    operands. All ranks run the same list of commands, so they start collectives
    in the same order.

    Because of overlap, the planned memory grows by at most `buffers` times the largest result of a
    collective in the function, and not beyond `limit`. If the memory would grow more, fewer
    collectives start early. Conditional collectives, ring exchanges of tiles and exchanges of
    expert rows are not moved (see `rt-split-async`). The attribute `rt.overlap` of a function has
    the modelled seconds of compute, of communication, and of exposed communication; functions of a
    pipeline stage have this attribute even if they have no collectives.

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
    Option<"buffers", "buffers", "int64_t", "2", "How many times the largest result of a collective planned memory may grow by.">,
    Option<"limit", "limit", "int64_t", "0", "Bytes of a rank's memory, beyond which nothing grows; 0: no limit.">
  ];
}

def SplitAsyncPass : Pass<"rt-split-async", "::mlir::ModuleOp"> {
  let summary = "Make permutations of tiles and exchanges of expert rows asynchronous";
  let description = [{
    A permutation of tiles, or an exchange of rows, becomes asynchronous if there are commands that
    compute between it and its first reader: it starts at its present place, and an `rt.wait` before
    its first reader ends it. So the next tile of a ring is transferred while attention on the
    current tile is computed. No other command accesses the source and destination memory of the
    transfer until the wait. All other collectives, and conditional ones, stay blocking.

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
  let summary = "Order commands so that memory is allocated late";
  let description = [{
    Keeps program order (the operations of the model, then those of its
    gradient), but moves fills, and views and copies of arguments, down to their
    first reader. This extends no lifetime, because arguments are live as long
    as the function runs. Collectives keep their order. All ranks run the same
    list of commands, so they issue collectives in the same order.

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
  let summary = "Prove that asynchronous collectives are waited for before their data is used";
  let description = [{
    All ranks run the same list of commands, so they issue collectives in the
    same order. The pass checks two more conditions, and reports an error if one
    of them is violated: exactly one `rt.wait` ends each asynchronous
    collective; and before this wait, no command reads the collective's results,
    or overwrites its results or operands.

    Before:
    ```mlir
    func.func @f(%x: tensor<8xf32>) -> tensor<8xf32> {
      %1:2 = rt.collective all_reduce(%x) group = [0, 1, 2] layout = [1, 8, 1, 8] purpose = "gradient"
        : (tensor<8xf32>) -> (tensor<8xf32>, !rt.token)
      %2 = rt.wait %1#1 values(%1#0) sources(%x) : (!rt.token, tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
      return %2 : tensor<8xf32>
    }
    ```

    After: unchanged. Without the `rt.wait`, the pass would report an error.
  }];
}

#endif
