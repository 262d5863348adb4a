// Loops: operations with a region that runs several times.

#ifndef CLEAVE_DIALECT_NN_IR_NNCONTROLOPS_TD
#define CLEAVE_DIALECT_NN_IR_NNCONTROLOPS_TD

include "cleave/Dialect/NN/IR/NNDialect.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def NN_ScanOp : NN_Op<"scan", [AttrSizedOperandSegments, IsolatedFromAbove, RecursiveMemoryEffects,
                               SingleBlockImplicitTerminator<"YieldOp">]> {
  let summary = "Runs a region once for each element of a dimension, and carries values from trip to trip";
  let description = [{
    The region runs `trips` times. It has an argument for each operand, in the order of
    the operands:

    - for each of `inits`, the carried value: the operand in the first trip, and in each
      later trip what the trip before yielded;
    - for each of `slices`, the operand's element along dimension 0 for this trip;
    - for each of `captures`, the operand itself.

    `nn.yield` ends a trip. It has first the new carried values, then the values that are
    stacked. The results are the carried values after the last trip, then for each stacked
    value a tensor whose dimension 0 has the values of all trips. Trip i reads and writes
    index i of dimension 0 or, with `reverse`, index trips - 1 - i. The region reads
    nothing from outside, so a scan is a value like that of any other operation.

    A region that needs the number of the trip slices an `nn.iota`. (The operation is the
    `Scan` of ONNX with axes 0 and one direction, and JAX's `lax.scan`.)

    ```mlir
    %last, %sums = nn.scan trips = 5 carries(%sum = %zero : tensor<3xf32>) slices(%x = %xs : tensor<5x3xf32>)
        captures(%w = %scale : tensor<3xf32>) -> tensor<3xf32>, tensor<5x3xf32> {
      %0 = arith.mulf %x, %w : tensor<3xf32>
      %1 = arith.addf %sum, %0 : tensor<3xf32>
      nn.yield %1, %1 : tensor<3xf32>, tensor<3xf32>
    }
    ```

    Constraints:
    - (SC1) `trips` is positive.
    - (SC2) Dimension 0 of each of `slices` has `trips` elements.
    - (SC3) The region has an argument for each operand. That of a sliced operand lacks its
      dimension 0; the others have the operand's type.
    - (SC4) `nn.yield` has the new carried values, in the types of `inits`, and then a value
      for each stacked result, which has the value's type with a dimension 0 of `trips`.
  }];
  let arguments = (ins Variadic<NN_Tensor>:$inits, Variadic<NN_Tensor>:$slices, Variadic<NN_Tensor>:$captures,
                       ConfinedAttr<I64Attr, [IntPositive]>:$trips, UnitAttr:$reverse);
  let results = (outs Variadic<NN_Tensor>:$results);
  let regions = (region SizedRegion<1>:$region);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let skipDefaultBuilders = 1;
  let builders = [
    // Creates a scan with an empty block that has the arguments (SC3). The types of the
    // stacked results are those of one trip.
    OpBuilder<(ins "int64_t":$trips, "::mlir::ValueRange":$inits, "::mlir::ValueRange":$slices,
                   "::mlir::ValueRange":$captures, "::mlir::TypeRange":$stacked, CArg<"bool", "false">:$reverse)>,
  ];
  let extraClassDeclaration = [{
    /// The arguments of the region, by kind of operand.
    ::mlir::MutableArrayRef<::mlir::BlockArgument> getCarriedArguments();
    ::mlir::MutableArrayRef<::mlir::BlockArgument> getSliceArguments();
    ::mlir::MutableArrayRef<::mlir::BlockArgument> getCaptureArguments();
    /// The carried values after the last trip.
    ::mlir::ResultRange getFinals() { return getResults().take_front(getInits().size()); }
    ::mlir::ResultRange getStacked() { return getResults().drop_front(getInits().size()); }
    /// The new carried values, and the values that are stacked.
    ::mlir::OperandRange getYieldedCarries();
    ::mlir::OperandRange getYieldedStacked();
    /// Returns the type of a tensor of which one trip has `type`.
    ::mlir::RankedTensorType stackedType(::mlir::Type type);
  }];
}

def NN_YieldOp : NN_Op<"yield", [Pure, Terminator, HasParent<"ScanOp">, ReturnLike]> {
  let summary = "Ends a trip of a loop";
  let description = [{
    The operands are the values with which the next trip begins, and the values that
    the loop stacks (`nn.scan`).
  }];
  let arguments = (ins Variadic<NN_Tensor>:$values);
  let assemblyFormat = "($values^ `:` type($values))? attr-dict";
  let builders = [OpBuilder<(ins), [{ build($_builder, $_state, ::mlir::ValueRange()); }]>];
}

#endif
