// Passes that turn local programs into kernels.

#ifndef CLEAVE_KERNELS_PASSES_TD
#define CLEAVE_KERNELS_PASSES_TD

include "mlir/Pass/PassBase.td"

def FormKernelsPass : Pass<"nn-form-kernels", "::mlir::ModuleOp"> {
  let summary = "Outline everything that no library does into kernel functions";
  let description = [{
    Runs on local programs after library calls are selected. What remains of each
    host function is library calls, collectives, placements that cost nothing
    (reshapes, contiguous slices), splat constants, and calls of private functions
    marked `nn.kernel`, whose bodies are in the vocabulary of generated kernels:
    elementwise `arith` and `math`, views, `nn.reduce`, `nn.gather`,
    `nn.scatter_add`. `nn.save` and `nn.rematerialize` have done their work and go.

    Each operation starts as a kernel of its own (decomposed, where it has to
    be), and kernels are merged along the edges between them as long as a plan
    of the merged loops exists, no cycle arises, and the estimated cost falls.
    Then kernels are merged that read the same kernel or command, each with few
    others of each kind, so that the time is proportional to the model's layers.
    Index grids, masks, broadcasts and constants are never stored: every kernel
    computes them again. Long reductions are first split in two, in a way that
    depends on shapes only, so that results do not depend on threads.

    A kernel carries `nn.extent` (its parallel iterations are [0, extent)),
    `nn.grain` (how many are worth a thread) and `nn.inplace`: pairs (result,
    operand) of which the result may take the operand's memory.

    Before:
    ```mlir
    func.func @f(%x: tensor<4x6xf32>, %b: tensor<6xf32>) -> tensor<4x6xf32> {
      %0 = nn.broadcast %b dims = [1] : tensor<6xf32> -> tensor<4x6xf32>
      %1 = arith.addf %x, %0 : tensor<4x6xf32>
      %2 = arith.negf %1 : tensor<4x6xf32>
      return %2 : tensor<4x6xf32>
    }
    ```

    After:
    ```mlir
    func.func @f(%x: tensor<4x6xf32>, %b: tensor<6xf32>) -> tensor<4x6xf32> {
      %0 = call @add_neg_0(%x, %b) : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
      return %0 : tensor<4x6xf32>
    }
    func.func private @add_neg_0(%x: tensor<4x6xf32>, %b: tensor<6xf32>) -> tensor<4x6xf32>
      attributes {nn.kernel, nn.extent = 4 : i64, nn.grain = 4 : i64, nn.inplace = array<i64: 0, 0>} {
      %0 = nn.broadcast %b dims = [1] : tensor<6xf32> -> tensor<4x6xf32>
      %1 = arith.addf %x, %0 : tensor<4x6xf32>
      %2 = arith.negf %1 : tensor<4x6xf32>
      return %2 : tensor<4x6xf32>
    }
    ```
  }];
  let dependentDialects = ["::mlir::func::FuncDialect", "::cleave::nn::NNDialect",
                           "::mlir::arith::ArithDialect", "::mlir::math::MathDialect"];
}

def RecomputeResidualsPass : Pass<"nn-recompute-residuals", "::mlir::ModuleOp"> {
  let summary = "Compute again what takes less than to store and read it";
  let description = [{
    Runs on local programs for CUDA devices, where arithmetic costs less than memory.
    A residual (the operand of an `nn.save`) that is elementwise work on other
    residuals, 16 operations at most, is computed again from these where the
    backward pass first reads it, unless something other than elementwise work
    reads it there: that would have to be stored, too. Residuals that are
    computed from the same ones share what they have in common. So of a gated layer,
    silu(gate) * up, gate and up stay, and neither the sigmoid nor its product
    with the gate.

    Before:
    ```mlir
    func.func @f(%gate: tensor<4xf32>, %up: tensor<4xf32>, %d: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
      %0 = arith.negf %gate : tensor<4xf32>
      %1 = nn.save %0 : tensor<4xf32>
      %2 = nn.sigmoid %0 : tensor<4xf32>
      %3 = nn.save %2 : tensor<4xf32>
      %4 = arith.mulf %d, %1 : tensor<4xf32>
      %5 = arith.mulf %4, %3 : tensor<4xf32>
      return %2, %5 : tensor<4xf32>, tensor<4xf32>
    }
    ```

    After:
    ```mlir
    func.func @f(%gate: tensor<4xf32>, %up: tensor<4xf32>, %d: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
      %0 = arith.negf %gate : tensor<4xf32>
      %1 = nn.save %0 : tensor<4xf32>
      %2 = nn.sigmoid %0 : tensor<4xf32>
      %4 = arith.mulf %d, %1 : tensor<4xf32>
      %3 = nn.sigmoid %1 : tensor<4xf32>
      %5 = arith.mulf %4, %3 : tensor<4xf32>
      return %2, %5 : tensor<4xf32>, tensor<4xf32>
    }
    ```
  }];
}

def DedupeKernelsPass : Pass<"nn-dedupe-kernels", "::mlir::ModuleOp"> {
  let summary = "Merge kernels that compute the same";
  let description = [{
    Runs after `nn-form-kernels`. Of kernels whose functions are equal but for
    their names, the first stays, and all calls go to it. The rest are numbered again, by
    first appearance, so that the layers of a deep model call the same few
    kernels as those of a shallow one.

    Before:
    ```mlir
    func.func private @neg_0(%x: tensor<4xf32>) -> tensor<4xf32> attributes {nn.kernel} {
      %0 = arith.negf %x : tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    func.func private @neg_1(%y: tensor<4xf32>) -> tensor<4xf32> attributes {nn.kernel} {
      %0 = arith.negf %y : tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = call @neg_0(%x) : (tensor<4xf32>) -> tensor<4xf32>
      %1 = call @neg_1(%0) : (tensor<4xf32>) -> tensor<4xf32>
      return %1 : tensor<4xf32>
    }
    ```

    After:
    ```mlir
    func.func private @neg_0(%x: tensor<4xf32>) -> tensor<4xf32> attributes {nn.kernel} {
      %0 = arith.negf %x : tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = call @neg_0(%x) : (tensor<4xf32>) -> tensor<4xf32>
      %1 = call @neg_0(%0) : (tensor<4xf32>) -> tensor<4xf32>
      return %1 : tensor<4xf32>
    }
    ```
  }];
}

#endif
