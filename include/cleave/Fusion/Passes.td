// Passes that turn per-rank programs into kernels.

#ifndef CLEAVE_KERNELS_PASSES_TD
#define CLEAVE_KERNELS_PASSES_TD

include "mlir/Pass/PassBase.td"

def FormKernelsPass : Pass<"nn-form-kernels", "::mlir::ModuleOp"> {
  let summary = "Fuse operations that no library computes into kernel functions";
  let description = [{
    Runs on per-rank programs after library calls are selected. After the pass, each host function
    consists of library calls, collectives, views that cost nothing (reshapes, contiguous slices),
    splat constants, and calls of private functions marked `nn.kernel`. The bodies of these kernels
    consist of operations for which code can be generated: elementwise `arith` and `math`, views,
    `nn.reduce`, `nn.gather`, `nn.scatter_add`. `nn.save` and `nn.rematerialize` are no longer
    needed and are removed.

    Each operation starts as a kernel of its own (decomposed into simpler operations, if
    necessary). A kernel is fused with a kernel that reads its result if the fused kernel can
    be computed with common loops, the fusion makes no cycle in the graph of kernels, and the
    estimated cost decreases. Then kernels that read the results of the same kernel or host
    operation are fused under the same conditions. Among kernels with the same operations and
    types, the fusion of a kernel is tried with only a few, so that the compile time is
    proportional to the number of layers. Index grids, masks, broadcasts and constants are
    never stored: every kernel recomputes them. Before fusion, long reductions are split into
    a reduction of parts and a reduction of the partial results. The split depends only on
    shapes, so results do not depend on the number of threads.

    A kernel has three attributes: `nn.extent`, the number of its parallel iterations;
    `nn.grain`, the smallest number of iterations that is worth a thread; and `nn.inplace`,
    pairs (result, operand) for which the result may take the operand's memory.

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
  let summary = "Recompute residuals where this takes less time than storing and loading them";
  let description = [{
    Runs on per-rank programs for CUDA devices, where arithmetic costs less than memory traffic. A
    residual is a value of the forward pass that is saved for the backward pass (the operand of an
    `nn.save`). If it can be computed from other residuals by at most 16 operations, elementwise
    ones and views, it is recomputed from these right before the backward pass first reads it. A
    residual stays saved if an operation that is not elementwise reads it in the backward pass,
    because this operation needs it in memory anyway. Residuals that are recomputed from the same
    saved residuals share common operations. For example, of a gated layer silu(gate) * up, only
    gate and up are saved; sigmoid(gate) and silu(gate) = gate * sigmoid(gate) are recomputed.

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
  let summary = "Merge identical kernels";
  let description = [{
    Runs after `nn-form-kernels`. If several kernel functions are equal except for their names, only
    the first one is kept, and all calls refer to it. The kernels that remain are renumbered in the
    order in which they appear. So the layers of a deep model call the same few kernels as those of
    a shallow model.

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
