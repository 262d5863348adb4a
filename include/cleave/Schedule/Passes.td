// Passes of the schedule phase.

#ifndef CLEAVE_SCHEDULE_PASSES_TD
#define CLEAVE_SCHEDULE_PASSES_TD

include "mlir/Pass/PassBase.td"

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
