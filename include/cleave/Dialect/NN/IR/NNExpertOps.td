// Products of rows with the matrices that the rows choose, and the order in which
// they choose them.

#ifndef CLEAVE_DIALECT_NN_IR_NNEXPERTOPS_TD
#define CLEAVE_DIALECT_NN_IR_NNEXPERTOPS_TD

include "cleave/Dialect/NN/IR/NNDialect.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def NN_GroupedDotOp : NN_Op<"grouped_dot", [Pure, AllElementTypesMatch<["input", "matrices"]>]> {
  let summary = "Multiplies every row by the matrix that it chooses";
  let description = [{
    result[r, :] = input[r, :] x matrices[ids[r], :, :], where r runs over all
    dimensions of `ids`: the slots of the tokens of a layer of experts, [b, s, k]
    for k experts a token. A row whose id is outside [0, e) gives zeros, so
    matrices that are sharded are used by shifted ids and one sum, and an id of -1 is a
    slot that is dropped. Only chosen rows are multiplied.

        input [r..., k]   matrices [e, k, n], with `transposed` [e, n, k]
        ids   [r...]      result   [r..., n]

    ```mlir
    %1 = nn.grouped_dot %x, %w, %ids : tensor<2x5x2x6xf32>, tensor<4x6x8xf32>, tensor<2x5x2xi64> -> tensor<2x5x2x8xf32>
    ```

    Constraints:
    - (GD1) Ranks and sizes are as above.
    - (GD2) The result has the operands' element type; that of a product of bf16 may be f32.
  }];
  let arguments = (ins NN_FloatTensor:$input, NN_FloatTensor:$matrices, NN_IndexTensor:$ids, UnitAttr:$transposed);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $input `,` $matrices `,` $ids (`transposed` $transposed^)? attr-dict
    `:` type($input) `,` type($matrices) `,` type($ids) `->` type($result)
  }];
  let hasVerifier = 1;
}

def NN_GroupedOuterOp : NN_Op<"grouped_outer", [Pure, AllElementTypesMatch<["left", "right"]>]> {
  let summary = "Adds up the outer products of the rows that chose each matrix";
  let description = [{
    result[m, i, j] = sum of left[r, i] * right[r, j] over the rows r with ids[r]
    = m: the derivative of `nn.grouped_dot` by its matrices. Rows with an id outside
    [0, e) count for nothing.

        left [r..., k]   right [r..., n]   ids [r...]   result [e, k, n]

    ```mlir
    %1 = nn.grouped_outer %x, %dy, %ids : tensor<2x5x2x6xf32>, tensor<2x5x2x8xf32>, tensor<2x5x2xi64> -> tensor<4x6x8xf32>
    ```

    Constraints:
    - (GO1) Ranks and sizes are as above.
    - (GO2) The result has the operands' element type; that of a product of bf16 may be f32.
  }];
  let arguments = (ins NN_FloatTensor:$left, NN_FloatTensor:$right, NN_IndexTensor:$ids);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $left `,` $right `,` $ids attr-dict `:` type($left) `,` type($right) `,` type($ids) `->` type($result)
  }];
  let hasVerifier = 1;
}

def NN_PositionInExpertOp : NN_Op<"position_in_expert", [Pure, AttrSizedOperandSegments, AllTypesMatch<["ids", "result"]>]> {
  let summary = "Counts the earlier slots that have chosen the same expert";
  let description = [{
    For each slot, how many slots of its sample that come before it have the same
    id: its place among the slots of its expert, from 0 (Lepikhin et al., 2020).
    Slots come in the order of their positions, those of one position in the order of
    their index; slots (i, j) and (i', j) of equal positions are not before each other.
    So the result does not depend on the order in which the tensors hold positions,
    which may be permuted.

        ids, result [b, s, k], or [b, s] of one slot each     positions [s] or [b, s]

    With `after`, samples stand in a row, too: `loads` [n, e] says how many slots of
    each of n samples have chosen each expert, `samples` [b] which of them these are,
    and loads[m, id] is added for every m < samples[b]. An id outside [0, experts) is
    that of a slot that chooses none: it gives 0 and counts for nothing.

    ```mlir
    %1 = nn.position_in_expert %ids, %positions experts = 4 : (tensor<2x5x3xi64>, tensor<5xi64>) -> tensor<2x5x3xi64>
    %2 = nn.position_in_expert %ids, %positions after(%loads, %samples) experts = 4
      : (tensor<2x5x3xi64>, tensor<5xi64>, tensor<6x4xi64>, tensor<2xi64>) -> tensor<2x5x3xi64>
    ```

    Constraints:
    - (PE1) Ranks and sizes are as above.
    - (PE2) `loads` and `samples` come together.
  }];
  let arguments = (ins NN_IndexTensor:$ids, NN_IndexTensor:$positions, Optional<NN_IndexTensor>:$loads,
                       Optional<NN_IndexTensor>:$samples, ConfinedAttr<I64Attr, [IntPositive]>:$experts);
  let results = (outs NN_IndexTensor:$result);
  let assemblyFormat = [{
    $ids `,` $positions (`after` `(` $loads^ `,` $samples `)`)? `experts` `=` $experts attr-dict
    `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

#endif
