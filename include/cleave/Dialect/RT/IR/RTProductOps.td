// Commands of the math libraries: products, convolutions, attention.

#ifndef CLEAVE_DIALECT_RT_IR_RTPRODUCTOPS_TD
#define CLEAVE_DIALECT_RT_IR_RTPRODUCTOPS_TD

include "cleave/Dialect/RT/IR/RTCommand.td"

def RT_GemmOp : RT_Command<"gemm", ["getReuse", "getScratchResult", "getFlops"], [AttrSizedOperandSegments]> {
  let summary = "A batch of matrix products with an epilogue";
  let description = [{
    C = activation(alpha * A B + bias [+ accumulator]) for each element of
    `batch`; A is [m, k], B [k, n], C [m, n]. A view is `[offset, batch strides...,
    row stride, column stride]`; batch strides may be 0 in operands. `bias` has n
    contiguous elements from `bias_offset` on. C takes the accumulator's memory.
    Results are C; with `keep_pre_activation`, the activation's operand, in C's
    view; and perhaps scratch memory.

    Only programs for CUDA devices have these: with `derivative_at`, in C's view,
    C = alpha * A B * activation'(derivative_at), the cotangent of what gelu was
    taken of. `sums_of` says of which operand the sums along k are a result after
    C, in C's element type: of each row of A, or column of B. Where that operand is a
    cotangent and C the gradient of weights, they are the gradient of a bias.

    ```mlir
    %c = rt.gemm a(%a [0, 5, 1]) b(%b [0, 6, 1]) c [0, 6, 1] m = 4 n = 6 k = 5
      : (tensor<4x5xf32>, tensor<5x6xf32>) -> tensor<4x6xf32>
    ```

    Constraints:
    - (G1) A, B, C and the bias have one element type; C of a product of bf16 may be f32.
    - (G2) `batch`, m, n, k are positive.
    - (G3) a view has an offset and a stride for each batch dimension, row and
      column, and stays inside its tensor.
    - (G4) bias holds n elements from `bias_offset` on.
    - (G5) the accumulator and the pre-activation have C's type; scratch memory is a tensor of i8.
    - (G6) `derivative_at` has C's element type, which is A's, and holds C's view. The activation is
      gelu_tanh, and there is no bias, accumulator, pre-activation or sum.
    - (G7) sums are as many as rows of A or columns of B. There is no batch, bias, activation
      or pre-activation.
  }];
  let arguments = (ins RT_FloatTensor:$a, RT_FloatTensor:$b, Optional<RT_FloatTensor>:$bias,
                       Optional<RT_FloatTensor>:$accumulator, Optional<RT_FloatTensor>:$derivative_at,
                       DenseI64ArrayAttr:$a_view, DenseI64ArrayAttr:$b_view, DenseI64ArrayAttr:$c_view,
                       DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$batch, I64Attr:$m, I64Attr:$n, I64Attr:$k,
                       DefaultValuedAttr<F64Attr, "1.0">:$alpha,
                       DefaultValuedAttr<I64Attr, "0">:$bias_offset,
                       DefaultValuedAttr<RT_ActivationAttr, "::cleave::rt::Activation::None">:$activation,
                       UnitAttr:$keep_pre_activation,
                       DefaultValuedAttr<RT_SumsOfAttr, "::cleave::rt::SumsOf::None">:$sums_of);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    `a` `(` $a $a_view `)` `b` `(` $b $b_view `)` (`bias` `(` $bias^ `)`)? (`accumulate` `(` $accumulator^ `)`)?
    (`derivative_at` `(` $derivative_at^ `)`)? `c` $c_view (`batch` `=` $batch^)? `m` `=` $m `n` `=` $n `k` `=` $k
    attr-dict `:` functional-type(operands, results)
  }];
  let extraClassDeclaration = [{
    ::mlir::Value getC() { return getResults()[0]; }
    /// Null where it is not kept.
    ::mlir::Value getPreActivation() { return getKeepPreActivation() ? getResults()[1] : ::mlir::Value(); }
    /// Null where there are none.
    ::mlir::Value getSums() {
      return getSumsOf() == SumsOf::None ? ::mlir::Value() : getResults()[getKeepPreActivation() ? 2 : 1];
    }
    /// All but scratch memory.
    unsigned getNumOwnResults() {
      return 1 + (getKeepPreActivation() ? 1 : 0) + (getSumsOf() == SumsOf::None ? 0 : 1);
    }
  }];
  let hasVerifier = 1;
}

def RT_GroupedGemmOp : RT_Command<"grouped_gemm", ["getScratchResult", "getFlops"]> {
  let summary = "Products of rows with the matrices that they choose";
  let description = [{
    Row r, over the dimensions `rows`, chooses matrix ids[r] of `e`, or none
    where that is outside [0, e). Without `outer`, `other` has the matrices W of
    [k, n], and the result is left[r] W[ids[r]] for each row, zeros where none is
    chosen. With it, `other` has rows as well, and the result is for each matrix
    the sum of left[r]^T other[r] over the rows that choose it. Views of rows are
    `[offset, a stride for each of rows, stride in a row]`, of ids without the last,
    of matrices `[offset, matrix, row, column]`; strides of rows may be 0 in operands.

    ```mlir
    %y = rt.grouped_gemm %x [0, 6, 0, 1] %w [0, 48, 8, 1] ids %ids [0, 2, 1] into [0, 16, 8, 1]
      rows = [5, 2] e = 4 k = 6 n = 8 : (tensor<5x6xf32>, tensor<4x6x8xf32>, tensor<5x2xi64>) -> tensor<5x2x8xf32>
    ```

    Constraints:
    - (H1) operands and result have one element type; the result of bf16 may be f32.
    - (H2) `rows`, e, k and n are positive.
    - (H3) views have the entries that they need and stay inside their tensors.
    - (H4) there is one result, and perhaps scratch memory of i8.
  }];
  let arguments = (ins RT_FloatTensor:$left, RT_FloatTensor:$other, RT_IndexTensor:$ids,
                       DenseI64ArrayAttr:$left_view, DenseI64ArrayAttr:$other_view,
                       DenseI64ArrayAttr:$ids_view, DenseI64ArrayAttr:$result_view,
                       DenseI64ArrayAttr:$rows, I64Attr:$e, I64Attr:$k, I64Attr:$n, UnitAttr:$outer);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    (`outer` $outer^)? $left $left_view $other $other_view `ids` $ids $ids_view `into` $result_view
    `rows` `=` $rows `e` `=` $e `k` `=` $k `n` `=` $n attr-dict `:` functional-type(operands, results)
  }];
  let extraClassDeclaration = [{
    /// Rows, or matrices with `outer`.
    ::mlir::Value getResult() { return getResults()[0]; }
  }];
  let hasVerifier = 1;
}

def RT_ConvOp : RT_Command<"conv", ["getScratchResult", "getFlops"]> {
  let summary = "A convolution, or a derivative of it";
  let description = [{
    What `nn.conv`, `nn.conv_input_grad` and `nn.conv_filter_grad` say: `forward`
    takes the input and the filter, `input_grad` the cotangent and the filter,
    `filter_grad` the cotangent and the input. Only programs for CUDA devices have it.
    Scratch memory may follow. With `narrow` the operands are values of bf16, in f32,
    as is the result.

    ```mlir
    %y = rt.conv forward %x, %w strides = [2] dilations = [1] low = [1] high = [1] groups = 1
      : (tensor<2x3x8xf32>, tensor<4x3x3xf32>) -> tensor<2x4x4xf32>
    ```

    Constraints:
    - (K1) input, filter and output have one rank, 3 to 5, and one element type; there
      is one result, and perhaps scratch memory of i8.
    - (K2) strides, dilations, low and high have one entry per spatial dimension,
      strides and dilations positive, low and high not negative.
    - (K3) `groups` divides channels and features; the filter has the channels of
      one group, the output the samples of the input and the features of the filter.
    - (K4) a spatial size of the output is
      (size + low + high - (kernel - 1) * dilation - 1) / stride + 1, rounded down, at
      least 1.
    - (K5) `narrow` is of f32.
  }];
  let arguments = (ins RT_ConvKindAttr:$kind, RT_FloatTensor:$lhs, RT_FloatTensor:$rhs,
                       DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$dilations,
                       DenseI64ArrayAttr:$low, DenseI64ArrayAttr:$high, I64Attr:$groups, UnitAttr:$narrow);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    $kind $lhs `,` $rhs `strides` `=` $strides `dilations` `=` $dilations `low` `=` $low
    `high` `=` $high `groups` `=` $groups attr-dict `:` functional-type(operands, results)
  }];
  let extraClassDeclaration = [{
    /// One of which is the first result.
    ::mlir::Value getInput();
    ::mlir::Value getFilter();
    ::mlir::Value getOutput();
  }];
  let hasVerifier = 1;
}

class RT_AttentionBase<string mnemonic> : RT_Command<mnemonic, ["getScratchResult", "getFlops"],
                                                     [AttrSizedOperandSegments]> {
  code declarations = [{
    /// Sizes by name.
    int64_t size(unsigned index) { return getSizes()[index]; }
  }];
  // What both directions may have beside their tensors.
  dag extraOperands = (ins Optional<RT_IndexTensor>:$q_positions, Optional<RT_IndexTensor>:$k_positions,
                           Optional<RT_IndexTensor>:$q_segments, Optional<RT_IndexTensor>:$k_segments,
                           Optional<RankedTensorOf<[I1]>>:$key_mask, Optional<RT_FloatTensor>:$bias,
                           Optional<RT_IndexTensor>:$dropout_keys, Optional<RT_IndexTensor>:$q_index,
                           Optional<RT_IndexTensor>:$k_index);
  dag extraAttributes = (ins DefaultValuedAttr<I64Attr, "0">:$window, DefaultValuedAttr<F64Attr, "0.0">:$softcap,
                             DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$q_positions_view,
                             DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$k_positions_view,
                             DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$q_segments_view,
                             DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$k_segments_view,
                             DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$key_mask_view,
                             DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$bias_view,
                             DefaultValuedAttr<F64Attr, "0.0">:$dropout,
                             DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$dropout_keys_view,
                             DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$q_index_view,
                             DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$k_index_view);
}

def RT_AttentionOp : RT_AttentionBase<"attention"> {
  let summary = "Scaled dot-product attention";
  let description = [{
    o = softmax(scale * q k^T + bias, masked) v, and lse, the log-sum-exp of the
    scores. `sizes` is [batch, queries, keys, KV heads, groups, d of q and k, d of v].
    A view is `[offset, batch, position, KV head, group, feature]`; the group of k
    and v, and the feature of lse, are ignored. The bias' view is
    `[offset, batch, query, KV head, group, key]`, that of positions, segments and
    key mask `[offset, batch, position]`, as that of the indices of dropout, whose keys
    have `[offset, batch, (query), KV head, group, (feature)]`. Masks, `window`,
    `softcap` and dropout are those of `nn.attention`.

    ```mlir
    %o, %lse = rt.attention q(%q) k(%k) v(%v) sizes = [2, 5, 5, 3, 1, 4, 4] scale = 0.5
      {causal, q_view = array<i64: 0, 60, 12, 4, 4, 1>, k_view = array<i64: 0, 60, 12, 4, 0, 1>, v_view = array<i64: 0, 60, 12, 4, 0, 1>,
       o_view = array<i64: 0, 60, 12, 4, 4, 1>, lse_view = array<i64: 0, 15, 1, 5, 5, 0>}
      : (tensor<2x5x3x1x4xf32>, tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32>) -> (tensor<2x5x3x1x4xf32>, tensor<2x3x1x5xf32>)
    ```

    Constraints:
    - (A1) `sizes` has 7 positive entries.
    - (A2) views have six entries (positions, segments, key mask: three) and stay inside their tensors.
    - (A3) positions and segments come in pairs, what dropout reads in threes, with 0 < p < 1;
      `window` and `softcap` are not negative.
    - (A5) floats have one element type; where that is bf16, lse and bias are f32.
  }];
  let arguments = !con((ins RT_FloatTensor:$q, RT_FloatTensor:$k, RT_FloatTensor:$v), extraOperands,
                       (ins DenseI64ArrayAttr:$sizes, F64Attr:$scale, UnitAttr:$causal,
                            DenseI64ArrayAttr:$q_view, DenseI64ArrayAttr:$k_view, DenseI64ArrayAttr:$v_view,
                            DenseI64ArrayAttr:$o_view, DenseI64ArrayAttr:$lse_view), extraAttributes);
  let results = (outs RT_FloatTensor:$o, RT_FloatTensor:$lse, Optional<RT_Scratch>:$scratch);
  let assemblyFormat = [{
    `q` `(` $q `)` `k` `(` $k `)` `v` `(` $v `)` (`positions` `(` $q_positions^ `,` $k_positions `)`)?
    (`segments` `(` $q_segments^ `,` $k_segments `)`)? (`key_mask` `(` $key_mask^ `)`)? (`bias` `(` $bias^ `)`)?
    (`dropout` `(` $dropout_keys^ `,` $q_index `,` $k_index `)`)?
    `sizes` `=` $sizes `scale` `=` $scale attr-dict `:` functional-type(operands, results)
  }];
  let extraClassDeclaration = declarations;
  let hasVerifier = 1;
}

def RT_AttentionGradOp : RT_AttentionBase<"attention_grad"> {
  let summary = "Cotangents of query, key and value of `rt.attention`";
  let description = [{
    `into` says in which of the results dq, dk and dv are: one each ([0, 1, 2]),
    or pieces of one buffer ([0, 0, 0]), as their views say. The pieces cover the
    buffer. Scratch memory may follow.

    ```mlir
    %d = rt.attention_grad do(%do) q(%q) k(%q) v(%q) o(%o) lse(%lse) sizes = [2, 5, 5, 3, 1, 4, 4] scale = 0.5 into [0, 0, 0]
      {causal, do_view = array<i64: 0, 60, 12, 4, 4, 1>, q_view = array<i64: 0, 180, 36, 4, 4, 1>, k_view = array<i64: 12, 180, 36, 4, 0, 1>,
       v_view = array<i64: 24, 180, 36, 4, 0, 1>, o_view = array<i64: 0, 60, 12, 4, 4, 1>, lse_view = array<i64: 0, 15, 1, 5, 5, 0>,
       dq_view = array<i64: 0, 180, 36, 4, 4, 1>, dk_view = array<i64: 12, 180, 36, 4, 0, 1>, dv_view = array<i64: 24, 180, 36, 4, 0, 1>}
      : (tensor<2x5x3x4xf32>, tensor<2x5x3x3x4xf32>, tensor<2x5x3x3x4xf32>, tensor<2x5x3x3x4xf32>, tensor<2x5x3x4xf32>, tensor<2x3x5xf32>)
      -> tensor<2x5x3x3x4xf32>
    ```

    Constraints: (A1) to (A3) and (A5) of `rt.attention`, and
    - (A4) `into` has three entries, indices of results from 0 on.
  }];
  let arguments = !con((ins RT_FloatTensor:$d_o, RT_FloatTensor:$q, RT_FloatTensor:$k, RT_FloatTensor:$v,
                            RT_FloatTensor:$o, RT_FloatTensor:$lse), extraOperands,
                       (ins DenseI64ArrayAttr:$sizes, F64Attr:$scale, UnitAttr:$causal,
                            DenseI64ArrayAttr:$do_view,
                            DenseI64ArrayAttr:$q_view, DenseI64ArrayAttr:$k_view, DenseI64ArrayAttr:$v_view,
                            DenseI64ArrayAttr:$o_view, DenseI64ArrayAttr:$lse_view,
                            DenseI64ArrayAttr:$dq_view, DenseI64ArrayAttr:$dk_view, DenseI64ArrayAttr:$dv_view,
                            DenseI64ArrayAttr:$into), extraAttributes);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    `do` `(` $d_o `)` `q` `(` $q `)` `k` `(` $k `)` `v` `(` $v `)` `o` `(` $o `)` `lse` `(` $lse `)`
    (`positions` `(` $q_positions^ `,` $k_positions `)`)?
    (`segments` `(` $q_segments^ `,` $k_segments `)`)? (`key_mask` `(` $key_mask^ `)`)? (`bias` `(` $bias^ `)`)?
    (`dropout` `(` $dropout_keys^ `,` $q_index `,` $k_index `)`)?
    `sizes` `=` $sizes `scale` `=` $scale `into` $into attr-dict `:` functional-type(operands, results)
  }];
  let extraClassDeclaration = declarations # [{
    /// The number of results that hold cotangents.
    int64_t getNumGrads() { return *::llvm::max_element(getInto()) + 1; }
  }];
  let hasVerifier = 1;
}

#endif
