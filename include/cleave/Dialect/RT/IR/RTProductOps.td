// Commands of the math libraries: products, convolutions, attention.

#ifndef CLEAVE_DIALECT_RT_IR_RTPRODUCTOPS_TD
#define CLEAVE_DIALECT_RT_IR_RTPRODUCTOPS_TD

include "cleave/Dialect/RT/IR/RTCommand.td"

def RT_GemmOp : RT_Command<"gemm", ["getReuse", "getScratchResult", "getFlops"], [AttrSizedOperandSegments]> {
  let summary = "A batch of matrix products, with bias, activation and accumulation";
  let description = [{
    The command computes C = activation(alpha * A B + bias [+ accumulator]) for
    each index of a batch whose dimensions have the sizes `batch`. A is [m, k],
    B is [k, n], and C is [m, n]. A view is
    `[offset, batch strides..., row stride, column stride]`; batch strides may
    be 0 in operands. `bias` has n contiguous elements from `bias_offset` on. C
    takes the accumulator's memory. The first result is C. With
    `keep_pre_activation`, the next result is the operand of the activation
    function, stored with C's view. The last result may be scratch memory.

    Two features exist only in programs for CUDA devices. With `derivative_at`, a tensor
    that is read with C's view, C = alpha * (A B) * activation'(derivative_at), where the
    product with the derivative is elementwise. If `derivative_at` is the operand of a GELU
    and alpha * A B the cotangent of its result, C is the cotangent of the operand. With
    `sums_of`, a result after C has the sum over k of each row of A or of each column of
    B, in C's element type. If the summed operand is a cotangent and C is the gradient of a
    weight, the sums are the gradient of a bias.

    ```mlir
    %c = rt.gemm a(%a [0, 5, 1]) b(%b [0, 6, 1]) c [0, 6, 1] m = 4 n = 6 k = 5
      : (tensor<4x5xf32>, tensor<5x6xf32>) -> tensor<4x6xf32>
    ```

    Constraints (the verifier's code cites them by these labels):
    - (G1) A, B, C and the bias have the same element type, except that C may be
      f32 if the others are bf16.
    - (G2) the sizes in `batch`, m, n and k are positive.
    - (G3) a view has an offset and a stride for each batch dimension, row and
      column, and stays inside its tensor.
    - (G4) the bias has n elements from `bias_offset` on.
    - (G5) the accumulator and the pre-activation have C's type; scratch memory is a tensor of i8.
    - (G6) if `derivative_at` is given, it and A have C's element type, and all
      elements that C's view addresses are inside `derivative_at`. The activation
      is then gelu_tanh, and there is no bias, accumulator, pre-activation or sum.
    - (G7) the result of `sums_of` has C's element type, and one element for each
      row of A or for each column of B. A product with this result has no batch,
      bias, activation or pre-activation.
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
    /// Returns the result that holds the operand of the activation function; null if the command does not keep it.
    ::mlir::Value getPreActivation() { return getKeepPreActivation() ? getResults()[1] : ::mlir::Value(); }
    /// Returns the result with the sums over k of operand `sums_of`; null if there is none.
    ::mlir::Value getSums() {
      return getSumsOf() == SumsOf::None ? ::mlir::Value() : getResults()[getKeepPreActivation() ? 2 : 1];
    }
    /// Returns the number of results, not counting scratch memory.
    unsigned getNumOwnResults() {
      return 1 + (getKeepPreActivation() ? 1 : 0) + (getSumsOf() == SumsOf::None ? 0 : 1);
    }
  }];
  let hasVerifier = 1;
}

def RT_GroupedGemmOp : RT_Command<"grouped_gemm", ["getScratchResult", "getFlops"]> {
  let summary = "Multiplies each row by the expert matrix that its id selects (grouped GEMM)";
  let description = [{
    `left` has rows of k elements. An index r of a row ranges over dimensions of
    the sizes `rows`. Each row selects the matrix ids[r] of `e` matrices, or no
    matrix if ids[r] is outside [0, e). Without `outer`, `other` has the
    matrices W, each [k, n], and the result for each row is left[r] W[ids[r]],
    or zeros if the row selects no matrix. With `outer`, `other` has rows of n
    elements, and the result for each matrix is the sum of left[r]^T other[r]
    over the rows that select the matrix. The view of a tensor of rows is
    `[offset, one stride for each entry of rows, stride in a row]`, that of ids
    lacks the last stride, and that of matrices is
    `[offset, matrix stride, row stride, column stride]`. In operands, strides
    of rows may be 0.

    ```mlir
    %y = rt.grouped_gemm %x [0, 6, 0, 1] %w [0, 48, 8, 1] ids %ids [0, 2, 1] into [0, 16, 8, 1]
      rows = [5, 2] e = 4 k = 6 n = 8 : (tensor<5x6xf32>, tensor<4x6x8xf32>, tensor<5x2xi64>) -> tensor<5x2x8xf32>
    ```

    Constraints (the verifier's code cites them by these labels):
    - (H1) operands and result have the same element type; the result of bf16 operands
      may also be f32.
    - (H2) `rows`, e, k and n are positive.
    - (H3) views have the entries described above and stay inside their tensors.
    - (H4) there is one result, optionally followed by scratch memory of i8.
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
    /// Returns the result that holds the rows or, with `outer`, the matrices.
    ::mlir::Value getResult() { return getResults()[0]; }
  }];
  let hasVerifier = 1;
}

def RT_ConvOp : RT_Command<"conv", ["getScratchResult", "getFlops"]> {
  let summary = "A convolution, or a derivative of it";
  let description = [{
    The command computes `nn.conv`, `nn.conv_input_grad` or `nn.conv_filter_grad`:
    `forward` takes the input and the filter, `input_grad` the cotangent of the output and
    the filter, `filter_grad` the cotangent of the output and the input. Only programs for
    CUDA devices have this command. Scratch memory may follow the result. With `narrow`,
    the operands are f32 tensors whose values are bf16 numbers, so rounding them to TF32
    changes nothing.

    ```mlir
    %y = rt.conv forward %x, %w strides = [2] dilations = [1] low = [1] high = [1] groups = 1
      : (tensor<2x3x8xf32>, tensor<4x3x3xf32>) -> tensor<2x4x4xf32>
    ```

    Constraints (the verifier's code cites them by these labels):
    - (K1) input, filter and output have the same number of dimensions, 3 to 5,
      and the same element type; there is one result, optionally followed by
      scratch memory of i8.
    - (K2) strides, dilations, low and high have one entry per spatial
      dimension. The entries of strides and dilations are positive, and those of
      low and high are not negative.
    - (K3) `groups` divides the number of channels (of the input) and of features (of
      the filter). The filter has the channels of one group. The output has the samples
      of the input and the features of the filter.
    - (K4) the size of each spatial dimension of the output is
      `(size + low + high - (kernel - 1) * dilation - 1) / stride + 1`, rounded
      down, and at least 1.
    - (K5) with `narrow`, the element type is f32.
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
    /// Return the input, filter and output of the convolution. In a gradient, they return the operand or
    /// result that has this role or is its cotangent.
    ::mlir::Value getInput();
    ::mlir::Value getFilter();
    ::mlir::Value getOutput();
  }];
  let hasVerifier = 1;
}

class RT_AttentionBase<string mnemonic> : RT_Command<mnemonic, ["getScratchResult", "getFlops"],
                                                     [AttrSizedOperandSegments]> {
  code declarations = [{
    /// Returns the entry of `sizes` with the given index.
    int64_t size(unsigned index) { return getSizes()[index]; }
  }];
  // Optional operands and attributes of both the forward and the gradient command.
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
    The results are o = softmax(scale * q k^T + bias, masked) v and lse, the
    log-sum-exp of the scores. `sizes` is [batch, queries, keys, KV heads,
    query heads per KV head, head dimension of q and k, head dimension of v]. A
    group is the query heads of one KV head. A view is an offset followed by one
    stride for each of the named dimensions:
    `[offset, batch, position, KV head, head in the group, feature]`. The stride
    of the head in the group is ignored for k and v, and the feature stride is
    ignored for lse. The view of the bias is
    `[offset, batch, query, KV head, head in the group, key]`. The views of
    positions, segments, key mask and the indices of dropout are
    `[offset, batch, position]`. `dropout_keys` has one random-number key for
    each sample and query head; its view is
    `[offset, batch, query, KV head, head in the group, feature]`, where the
    query stride is 0 and the feature stride is ignored. Masks, `window`,
    `softcap` and dropout are those of `nn.attention`.

    ```mlir
    %o, %lse = rt.attention q(%q) k(%k) v(%v) sizes = [2, 5, 5, 3, 1, 4, 4] scale = 0.5
      {causal, q_view = array<i64: 0, 60, 12, 4, 4, 1>, k_view = array<i64: 0, 60, 12, 4, 0, 1>, v_view = array<i64: 0, 60, 12, 4, 0, 1>,
       o_view = array<i64: 0, 60, 12, 4, 4, 1>, lse_view = array<i64: 0, 15, 1, 5, 5, 0>}
      : (tensor<2x5x3x1x4xf32>, tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32>) -> (tensor<2x5x3x1x4xf32>, tensor<2x3x1x5xf32>)
    ```

    Constraints (the verifier's code cites them by these labels):
    - (A1) `sizes` has 7 positive entries.
    - (A2) views have six entries and stay inside their tensors; those of positions, segments,
      key mask and the indices of dropout have three entries.
    - (A3) positions are given for both queries and keys or for neither, and so are
      segments. The three operands of dropout are all given, with 0 < `dropout` < 1, or
      all absent, with `dropout` = 0. `window` and `softcap` are not negative.
    - (A5) all tensors of floats have the same element type. If it is bf16, lse
      and the bias are f32 instead.
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
  let summary = "Computes the cotangents of query, key and value of `rt.attention`";
  let description = [{
    The operands are those of `rt.attention`, its results o and lse, and the cotangent
    `do` of o. `into` gives the indices of the results that hold the cotangents dq, dk
    and dv: each in a result of its own ([0, 1, 2]), or all as parts of one buffer
    ([0, 0, 0]). Their views say where in the buffer the parts are, and the parts cover
    the buffer. Scratch memory may follow the results.

    ```mlir
    %d = rt.attention_grad do(%do) q(%q) k(%q) v(%q) o(%o) lse(%lse) sizes = [2, 5, 5, 3, 1, 4, 4] scale = 0.5 into [0, 0, 0]
      {causal, do_view = array<i64: 0, 60, 12, 4, 4, 1>, q_view = array<i64: 0, 180, 36, 4, 4, 1>, k_view = array<i64: 12, 180, 36, 4, 0, 1>,
       v_view = array<i64: 24, 180, 36, 4, 0, 1>, o_view = array<i64: 0, 60, 12, 4, 4, 1>, lse_view = array<i64: 0, 15, 1, 5, 5, 0>,
       dq_view = array<i64: 0, 180, 36, 4, 4, 1>, dk_view = array<i64: 12, 180, 36, 4, 0, 1>, dv_view = array<i64: 24, 180, 36, 4, 0, 1>}
      : (tensor<2x5x3x4xf32>, tensor<2x5x3x3x4xf32>, tensor<2x5x3x3x4xf32>, tensor<2x5x3x3x4xf32>, tensor<2x5x3x4xf32>, tensor<2x3x5xf32>)
      -> tensor<2x5x3x3x4xf32>
    ```

    Constraints (the verifier's code cites them by these labels):
    (A1) to (A3) and (A5) of `rt.attention`, and
    - (A4) `into` has three entries, for dq, dk and dv: each is the index of a
      result, counted from 0.
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
    /// Returns the number of results that hold cotangents.
    int64_t getNumGrads() { return *::llvm::max_element(getInto()) + 1; }
  }];
  let hasVerifier = 1;
}

#endif
