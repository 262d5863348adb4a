// Operations of mixture-of-experts layers: grouped matrix products, in which
// each row is multiplied by the matrix of its expert, and the numbering of the
// token-expert pairs of each expert.

#ifndef CLEAVE_DIALECT_NN_IR_NNEXPERTOPS_TD
#define CLEAVE_DIALECT_NN_IR_NNEXPERTOPS_TD

include "cleave/Dialect/NN/IR/NNDialect.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def NN_GroupedDotOp : NN_Op<"grouped_dot", [Pure, AllElementTypesMatch<["input", "matrices"]>]> {
  let summary = "Multiplies each row by the expert matrix that its id selects";
  let description = [{
    result[r, :] = input[r, :] x matrices[ids[r], :, :], where r runs over all
    dimensions of `ids`. In a mixture-of-experts layer each row belongs to a
    pair of a token and an expert that the token chose, and `ids` is [b, s, k]
    for k experts per token. If an expert does not accept a token, the id of
    the pair is -1. The result for a row with an id outside [0, e) is zeros,
    without a multiplication. So if the expert matrices are sharded, each rank
    uses its tile of them and ids relative to this tile, and the sum over the
    ranks is the result.

        input [r..., k]   matrices [e, k, n], with `transposed` [e, n, k]
        ids   [r...]      result   [r..., n]

    ```mlir
    %1 = nn.grouped_dot %x, %w, %ids : tensor<2x5x2x6xf32>, tensor<4x6x8xf32>, tensor<2x5x2xi64> -> tensor<2x5x2x8xf32>
    ```

    Constraints (the verifier's code cites them by these labels):
    - (GD1) Ranks and sizes of operands and result are those listed above.
    - (GD2) The result has the element type of `input` and `matrices`; if this
      type is bf16, the result may also be f32.
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
  let summary = "Sums, for each expert, the outer products of its rows";
  let description = [{
    result[m, i, j] is the sum of left[r, i] * right[r, j] over the rows r with
    ids[r] = m. The operation computes the gradient of the matrices of
    `nn.grouped_dot` from its input rows (`left`) and the cotangents of its result
    rows (`right`). Rows with an id outside [0, e) are ignored.

        left [r..., k]   right [r..., n]   ids [r...]   result [e, k, n]

    ```mlir
    %1 = nn.grouped_outer %x, %dy, %ids : tensor<2x5x2x6xf32>, tensor<2x5x2x8xf32>, tensor<2x5x2xi64> -> tensor<4x6x8xf32>
    ```

    Constraints (the verifier's code cites them by these labels):
    - (GO1) Ranks and sizes of operands and result are those listed above.
    - (GO2) The result has the element type of `left` and `right`; if this type
      is bf16, the result may also be f32.
  }];
  let arguments = (ins NN_FloatTensor:$left, NN_FloatTensor:$right, NN_IndexTensor:$ids);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $left `,` $right `,` $ids attr-dict `:` type($left) `,` type($right) `,` type($ids) `->` type($result)
  }];
  let hasVerifier = 1;
}

def NN_PositionInExpertOp : NN_Op<"position_in_expert", [Pure, AttrSizedOperandSegments, AllTypesMatch<["ids", "result"]>]> {
  let summary = "Numbers the token-expert pairs of each expert in token order";
  let description = [{
    Element (i, j) of a sample's `ids` is the expert that token i has chosen as
    its j-th expert. For each such token-expert pair, the result is the number
    of earlier pairs of the same sample with the same expert. This number is
    the position, from 0, that the pair takes among the pairs of its expert
    (Lepikhin et al., 2020). The pairs (i, j) of a sample are ordered by
    positions[i], the position of token i in the sequence, and pairs of equal
    positions by j; of two pairs (i, j) and (i', j) of equal positions, neither
    is earlier. So the result of a pair does not depend on the order of the
    tokens in the tensors, in which positions may be permuted.

        ids, result [b, s, k], or [b, s] for one expert per token     positions [s] or [b, s]

    With the operands `after(loads, samples)`, the pairs of earlier samples are
    counted, too. `loads` [n, e] has, for each of n samples and each of e
    experts, the number of pairs of the sample with this expert. `samples` [b]
    gives the index of each sample of `ids` among the n samples. For a pair of
    sample i, the sum of loads[m, id] over all m < samples[i] is added to the
    result. A pair with an id outside [0, experts) has no expert; its result is
    0, and it is not counted.

    ```mlir
    %1 = nn.position_in_expert %ids, %positions experts = 4 : (tensor<2x5x3xi64>, tensor<5xi64>) -> tensor<2x5x3xi64>
    %2 = nn.position_in_expert %ids, %positions after(%loads, %samples) experts = 4
      : (tensor<2x5x3xi64>, tensor<5xi64>, tensor<6x4xi64>, tensor<2xi64>) -> tensor<2x5x3xi64>
    ```

    Constraints (the verifier's code cites them by these labels):
    - (PE1) Ranks and sizes of operands and result are those listed above.
    - (PE2) the operands `loads` and `samples` are both given or both absent.
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
