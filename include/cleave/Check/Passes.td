// Passes of `cleave check`.

#ifndef CLEAVE_CHECK_PASSES_TD
#define CLEAVE_CHECK_PASSES_TD

include "mlir/Pass/PassBase.td"

def WidenPass : Pass<"nn-widen", "::mlir::ModuleOp"> {
  let summary = "Convert every floating-point type to f64";
  let description = [{
    Arguments, results, values and constants of any floating type become f64, and casts between
    floating types vanish. Constants keep the value that they had in their own type. Attributes that
    describe bytes in a file do not change; the reader of the file converts the values. The pass
    works before and after partitioning, so that the two programs that `cleave check` compares have
    the same operations as in the real precision, but their rounding errors are far smaller than the
    errors of a faulty program. A `bitcast` from or to a float has no f64 form and is an error.

    Before:
    ```mlir
    func.func @f(%x: tensor<3xf32> {nn.name = "x", nn.role = #nn.role<input>}) -> tensor<3xf64> {
      %half = arith.constant dense<0.5> : tensor<3xf32>
      %0 = arith.mulf %x, %half : tensor<3xf32>
      %1 = arith.extf %0 : tensor<3xf32> to tensor<3xf64>
      return %1 : tensor<3xf64>
    }
    ```

    After:
    ```mlir
    func.func @f(%x: tensor<3xf64> {nn.name = "x", nn.role = #nn.role<input>}) -> tensor<3xf64> {
      %half = arith.constant dense<0.5> : tensor<3xf64>
      %0 = arith.mulf %x, %half : tensor<3xf64>
      return %0 : tensor<3xf64>
    }
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

def InjectFaultPass : Pass<"check-inject-fault", "::mlir::ModuleOp"> {
  let summary = "Inject a fault into a partitioned program";
  let description = [{
    Injects one fault of the given kind into a per-rank program, so that a test can check that
    `cleave check` finds it. Of the possible places for the fault, the pass takes the middle one in
    program order, or the one with number `index`. It is an error if the program has no place for
    the kind of fault, or if the kind does not exist. The result is valid IR, but passes that verify
    shardings (`dist-verify-variance`) must not run after this pass.

    | kind | the mistake |
    |---|---|
    | `drop-collective` | a sum over ranks is left out |
    | `sum-for-mean` | a reduced gradient, or loss, is multiplied by the size of its group |
    | `wrong-group` | a collective runs over another axis of the mesh than it should |
    | `swapped-axes` | a rank's index over several mesh axes is computed with the axes in reverse order, or an operation that needs the rank's index on one axis gets its index on another axis |
    | `pad-identity` | padding is masked by a value that is not the identity of the reduction |
    | `bias-twice` | a value that must be added once after a sum over ranks is added on every rank before the sum |
    | `norm-twice` | the gradient norm counts the first shard twice |
    | `random-offset` | a tile uses the random numbers of its neighbour |
    | `gradient-off` | a gradient has a relative error of one millionth |
    | `stale-buffer` | a parameter, or a reader of a gathered value, keeps the old content of its buffer |
    | `missing-wait` | a transfer is read before it is complete |

    The kinds `slot-reused`, `microbatch-swapped` and `gradient-twice` are only possible in the
    command lists of a pipeline (`cleave check --inject`); for this pass they are an error.

    Before (`kind=drop-collective`):
    ```mlir
    dist.mesh @m <["x"=2]>
    func.func @update(%g: tensor<3xf32>) -> tensor<3xf32> {
      %0 = dist.all_reduce sum %g over @m {"x"} purpose gradient : tensor<3xf32>
      return %0 : tensor<3xf32>
    }
    ```

    After:
    ```mlir
    dist.mesh @m <["x"=2]>
    func.func @update(%g: tensor<3xf32>) -> tensor<3xf32> {
      return %g : tensor<3xf32>
    }
    ```
  }];
  let options = [
    Option<"kind", "kind", "std::string", "\"\"", "The kind of mistake">,
    Option<"index", "index", "int64_t", "-1", "Which place, counted from 0; -1: the middle one">,
  ];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::cleave::nn::NNDialect", "::cleave::dist::DistDialect"];
}

#endif
