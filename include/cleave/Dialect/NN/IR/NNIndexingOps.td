// Gather and scatter: operations that read or add at indices given by a tensor.

#ifndef CLEAVE_DIALECT_NN_IR_NNINDEXINGOPS_TD
#define CLEAVE_DIALECT_NN_IR_NNINDEXINGOPS_TD

include "cleave/Dialect/NN/IR/NNDialect.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def NN_GatherOp : NN_Op<"gather", [Pure, InferTypeOpAdaptor]> {
  let summary = "Reads slices of a table at indices";
  let description = [{
    The result has the dimensions of `indices` in place of dimension `dim` of the table:
    `table[..., indices[...], ...]`. An index outside the table reads zeros. So if the
    table is sharded, each rank reads its tile with indices relative to this tile, and
    the sum over the ranks is the result. (An index outside the table is still an error
    of the program: indices in the inputs are checked before a step begins, and indices
    that the program computes are checked by `nn.check_index`.)

    ```mlir
    %1 = nn.gather %table, %ids dim = 0 : tensor<7x3xf32>, tensor<2x5xi64> -> tensor<2x5x3xf32>
    ```

    Constraints (the verifier's code cites them by these labels):
    - (G1) `dim` is a dimension of the table.
  }];
  let arguments = (ins NN_Tensor:$table, NN_IndexTensor:$indices, ConfinedAttr<I64Attr, [IntNonNegative]>:$dim);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$table `,` $indices `dim` `=` $dim attr-dict `:` type($table) `,` type($indices) `->` type($result)";
}

def NN_CheckIndexOp : NN_Op<"check_index", [Pure, SameOperandsAndResultType]> {
  let summary = "Checks that indices are inside a table";
  let description = [{
    The result is the operand, which holds indices into a table of `rows` rows. A run
    fails if an element is below 0 or not below `rows`; the error names the operation,
    the element and `rows`. For a sharded table, `rows` is the number of rows of the
    whole table. Padding, and elements that nothing reads, are not checked. Kernels for
    CUDA devices check no elements.

    ```mlir
    %1 = nn.check_index %0 below 7 : tensor<2x5xi64>
    ```
  }];
  let arguments = (ins NN_IndexTensor:$input, ConfinedAttr<I64Attr, [IntPositive]>:$rows);
  let results = (outs NN_IndexTensor:$result);
  let assemblyFormat = "$input `below` $rows attr-dict `:` type($result)";
}

def NN_ScatterAddOp : NN_Op<"scatter_add", [Pure, AllElementTypesMatch<["updates", "result"]>]> {
  let summary = "Adds slices at given indices to a table of zeros";
  let description = [{
    The operation is the transpose of `nn.gather`, and the result has the table's shape.
    Updates at the same index are added in row-major order of the indices; an update
    with an index outside the table is dropped.

    ```mlir
    %1 = nn.scatter_add %ids, %rows dim = 0 : tensor<2x5xi64>, tensor<2x5x3xf32> -> tensor<7x3xf32>
    ```

    Constraints (the verifier's code cites them by these labels):
    - (S1) `dim` is a dimension of the result.
    - (S2) The updates have the shape that `nn.gather` gives for a table of the result's
      shape and the same `dim` and indices.
  }];
  let arguments = (ins NN_IndexTensor:$indices, NN_FloatTensor:$updates, ConfinedAttr<I64Attr, [IntNonNegative]>:$dim);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$indices `,` $updates `dim` `=` $dim attr-dict `:` type($indices) `,` type($updates) `->` type($result)";
  let hasVerifier = 1;
}

#endif
