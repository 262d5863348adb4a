// Loops: operations with a region that runs several times.

#ifndef CLEAVE_DIALECT_NN_IR_NNCONTROLOPS_TD
#define CLEAVE_DIALECT_NN_IR_NNCONTROLOPS_TD

include "cleave/Dialect/NN/IR/NNDialect.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def NN_ScanOp : NN_Op<"scan", [AttrSizedOperandSegments, IsolatedFromAbove, RecursiveMemoryEffects,
                               SingleBlockImplicitTerminator<"YieldOp">]> {
  let summary = "Runs a region once for each element of a dimension, and carries values from iteration to iteration";
  let description = [{
    The region runs `trips` times. It has an argument for each operand, in the order of
    the operands:

    - for each of `inits`, the carried value: the operand in the first
      iteration, and in each later iteration the value that the previous
      iteration yielded;
    - for each of `slices`, the slice of the operand along dimension 0 that
      belongs to this iteration;
    - for each of `captures`, the operand itself.

    `nn.yield` ends an iteration. Its operands are first the new carried values,
    then the values that are stacked. The results are the carried values after
    the last iteration, then for each stacked value a tensor whose dimension 0
    has the values of all iterations. Iteration i reads and writes index i of
    dimension 0 or, with `reverse`, index trips - 1 - i. The region uses no
    values that are defined outside of it, so a scan depends only on its
    operands, like any other operation.

    A region that needs the number of the iteration gets it as a slice of an `nn.iota`.
    (The operation corresponds to `lax.scan` of JAX, and to `Scan` of ONNX with scan
    axis 0 and the same direction for all inputs and outputs.)

    ```mlir
    %last, %sums = nn.scan trips = 5 carries(%sum = %zero : tensor<3xf32>) slices(%x = %xs : tensor<5x3xf32>)
        captures(%w = %scale : tensor<3xf32>) -> tensor<3xf32>, tensor<5x3xf32> {
      %0 = arith.mulf %x, %w : tensor<3xf32>
      %1 = arith.addf %sum, %0 : tensor<3xf32>
      nn.yield %1, %1 : tensor<3xf32>, tensor<3xf32>
    }
    ```

    Constraints (the verifier's code cites them by these labels):
    - (SC1) `trips` is positive.
    - (SC2) Dimension 0 of each of `slices` has `trips` elements.
    - (SC3) The region has an argument for each operand. The argument for one of
      `slices` has the operand's type without dimension 0; every other argument
      has the operand's type.
    - (SC4) The operands of `nn.yield` are the new carried values, in the types
      of `inits`, and then a value for each stacked result. The stacked result
      has the value's type with an additional dimension 0 of size `trips`.
  }];
  let arguments = (ins Variadic<NN_Tensor>:$inits, Variadic<NN_Tensor>:$slices, Variadic<NN_Tensor>:$captures,
                       ConfinedAttr<I64Attr, [IntPositive]>:$trips, UnitAttr:$reverse);
  let results = (outs Variadic<NN_Tensor>:$results);
  let regions = (region SizedRegion<1>:$region);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let hasCanonicalizer = 1;
  let skipDefaultBuilders = 1;
  let builders = [
    // Creates a scan whose block has the arguments that the operands require,
    // but no operations yet. `stacked` has the types of the stacked values in
    // one iteration, without the dimension that stacks them.
    OpBuilder<(ins "int64_t":$trips, "::mlir::ValueRange":$inits, "::mlir::ValueRange":$slices,
                   "::mlir::ValueRange":$captures, "::mlir::TypeRange":$stacked, CArg<"bool", "false">:$reverse)>,
  ];
  let extraClassDeclaration = [{
    /// Return the arguments of the region for `inits`, `slices`, `captures`.
    ::mlir::MutableArrayRef<::mlir::BlockArgument> getCarriedArguments();
    ::mlir::MutableArrayRef<::mlir::BlockArgument> getSliceArguments();
    ::mlir::MutableArrayRef<::mlir::BlockArgument> getCaptureArguments();
    /// The carried values after the last iteration.
    ::mlir::ResultRange getFinals() { return getResults().take_front(getInits().size()); }
    ::mlir::ResultRange getStacked() { return getResults().drop_front(getInits().size()); }
    /// Return the operands of nn.yield: the new carried values, and the values
    /// of this iteration that are stacked.
    ::mlir::OperandRange getYieldedCarries();
    ::mlir::OperandRange getYieldedStacked();
    /// Returns the type of the stacked result, if each iteration yields a value
    /// of type `type`: `type` with an additional dimension 0 of size `trips`.
    ::mlir::RankedTensorType stackedType(::mlir::Type type);
    /// Adds a capture for each value outside of the region that the region
    /// reads, and replaces its uses in the region.
    void captureOutsideValues();
  }];
}

def NN_YieldOp : NN_Op<"yield", [Pure, Terminator, HasParent<"ScanOp">, ReturnLike]> {
  let summary = "Ends an iteration of a loop";
  let description = [{
    The operands are the carried values with which the next iteration begins,
    and then the values that the loop stacks (`nn.scan`).
  }];
  let arguments = (ins Variadic<NN_Tensor>:$values);
  let assemblyFormat = "($values^ `:` type($values))? attr-dict";
  let builders = [OpBuilder<(ins), [{ build($_builder, $_state, ::mlir::ValueRange()); }]>];
}

#endif
