// Commands, as operations on tensor values.

#ifndef CLEAVE_DIALECT_RT_IR_RTOPS_TD
#define CLEAVE_DIALECT_RT_IR_RTOPS_TD

include "cleave/Dialect/RT/IR/RTDialect.td"
include "cleave/Dialect/RT/IR/RTInterfaces.td"
include "mlir/IR/BuiltinAttributeInterfaces.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def RT_FloatTensor : RankedTensorOf<[F64, F32, BF16]>;
def RT_IndexTensor : RankedTensorOf<[I64]>;
def RT_Scratch : RankedTensorOf<[I8]>;

class RT_Command<string mnemonic, list<string> methods, list<Trait> traits = []>
    : RT_Op<mnemonic, !listconcat([Pure, DeclareOpInterfaceMethods<RT_CommandOpInterface, methods>], traits)>;

def RT_LaunchOp : RT_Command<"launch", ["getReuse"], [DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "Runs a kernel on all its rows";
  let description = [{
    Calls `kernel` on pieces of the rows [0, extent), none smaller than `grain`
    but the last, perhaps from several threads. The kernel's arguments are the
    operands, then the results. `inplace` lists pairs (result, operand): the
    result may lie where the operand does.

    ```mlir
    %1 = rt.launch @kernel_0(%0) extent = 4 grain = 1 inplace = [0, 0] : (tensor<4x6xf32>) -> tensor<4x6xf32>
    ```

    Constraints:
    - (L1) `kernel` is a function whose type is that of operands and results.
    - (L2) `extent` is not negative and `grain` is positive.
    - (L3) `inplace` has an even number of entries, each pair an index of a result
      and of an operand that is no smaller.
  }];
  let arguments = (ins FlatSymbolRefAttr:$kernel, Variadic<AnyRankedTensor>:$inputs,
                       I64Attr:$extent, I64Attr:$grain,
                       DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$inplace);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    $kernel `(` $inputs `)` `extent` `=` $extent `grain` `=` $grain (`inplace` `=` $inplace^)? attr-dict
    `:` functional-type($inputs, $results)
  }];
  let hasVerifier = 1;
}

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
    taken of. `sums_of` says of which operand the sums along k are a result behind
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
    `into` says in which of the results dq, dk and dv lie: one each ([0, 1, 2]),
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

def RT_CollectiveOp : RT_Command<"collective", ["getReuse"], [AttrSizedOperandSegments]> {
  let summary = "Communication among the ranks of a group";
  let description = [{
    `group` lists (axis, pre, size) of the mesh's axes; members are ordered
    row-major over them. Operand i becomes result i, one message in all; `layout`
    has four numbers for each, (outer, inner, outer of the result, inner of the
    result): an all-gather takes [outer, inner] to [outer, N, inner], a
    reduce-scatter back, an all-to-all [outer, N, inner] to [outer', N, inner'].
    An exchange has the elements of its two tiles as `inner` and `inner'`, and
    `exchanges` says for each operand how the whole tensor lies: its rank and
    shape; before, for each dimension, a count and so many triples (axis, pre,
    size); after, the same; a count and triples of the axes that are reduced; the
    same of those over which the result has addends; the number of rounds.
    An all_to_all_v takes [N, outer, inner] to the same, `outer` rows for each member,
    of which `counts` say how many go to each and come from each. `expected`, `by` (triples
    as in `group`) and `home` say how many are reckoned to, as in `dist.all_to_all_v`.
    With a token as last result the command only starts; `rt.wait` ends it.

    ```mlir
    %1 = rt.collective all_gather(%0) group = [1, 1, 2] layout = [4, 3, 1, 0] purpose = "activation"
      : (tensor<4x3xf32>) -> tensor<4x6xf32>
    ```

    Constraints:
    - (C1) there are as many results as operands, at least one, all of one element
      type, and perhaps a token.
    - (C2) `group` has triples of a non-negative and two positive numbers.
    - (C3) `layout` has four numbers for each operand, and outer times inner is
      its number of elements (times or divided by the group for gather and scatter).
    - (C4) a permutation has a source for each member (-1: zeros); others have none.
    - (C5) an exchange has a description of each operand in `exchanges`; others
      have none.
    - (C6) an all_to_all_v has two `counts`, of one number for each member; others
      have none.
  }];
  let arguments = (ins RT_CollectiveKindAttr:$kind, Variadic<AnyRankedTensor>:$inputs,
                       Variadic<RT_IndexTensor>:$counts,
                       DenseI64ArrayAttr:$group, DenseI64ArrayAttr:$layout, StrAttr:$purpose,
                       DefaultValuedAttr<RT_ReduceAttr, "::cleave::rt::Reduce::Sum">:$reduce,
                       DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$sources,
                       DefaultValuedAttr<I64Attr, "0">:$root,
                       DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$exchanges,
                       DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$expected,
                       DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$by, UnitAttr:$home);
  let results = (outs Variadic<AnyType>:$results);
  let assemblyFormat = [{
    $kind `(` $inputs `)` (`counts` `(` $counts^ `:` type($counts) `)`)?
    `group` `=` $group `layout` `=` $layout `purpose` `=` $purpose attr-dict
    `:` functional-type($inputs, results)
  }];
  let extraClassDeclaration = [{
    int64_t getGroupSize();
    /// `exchanges` as the program has them; null where they are malformed.
    std::optional<std::vector<::cleave::program::Exchange>> describeExchanges();
    /// What the members receive.
    ::mlir::ResultRange getValues() { return getResults().take_front(getInputs().size()); }
    /// Null where the command also ends here.
    ::mlir::Value getToken() { return getNumResults() > getInputs().size() ? getResults().back() : ::mlir::Value(); }
  }];
  let hasVerifier = 1;
}

def RT_PlanRowsOp : RT_Command<"plan_rows", []> {
  let summary = "Where rows go that are sent to the ranks of what they choose";
  let description = [{
    As `dist.plan_rows`.

    ```mlir
    %sources, %places, %sent, %counts = rt.plan_rows %ids tile = 3
        : tensor<10xi64> -> tensor<2x4x5xi64>, tensor<10xi64>, tensor<2x4x5xi64>, tensor<4x2xi64>
    ```
  }];
  let arguments = (ins RT_IndexTensor:$ids, ConfinedAttr<I64Attr, [IntPositive]>:$tile);
  let results = (outs RT_IndexTensor:$sources, RT_IndexTensor:$places, RT_IndexTensor:$sent,
                      RT_IndexTensor:$counts);
  let assemblyFormat = [{
    $ids `tile` `=` $tile attr-dict
    `:` type($ids) `->` type($sources) `,` type($places) `,` type($sent) `,` type($counts)
  }];
}

def RT_SortRowsOp : RT_Command<"sort_rows", []> {
  let summary = "The order of rows by what they choose";
  let description = [{
    As `dist.sort_rows`.

    ```mlir
    %order, %places, %sorted = rt.sort_rows %ids groups = 3
        : tensor<5x2xi64> -> tensor<10xi64>, tensor<5x2xi64>, tensor<10xi64>
    ```
  }];
  let arguments = (ins RT_IndexTensor:$ids, ConfinedAttr<I64Attr, [IntPositive]>:$groups);
  let results = (outs RT_IndexTensor:$order, RT_IndexTensor:$places, RT_IndexTensor:$sorted);
  let assemblyFormat = [{
    $ids `groups` `=` $groups attr-dict
    `:` type($ids) `->` type($order) `,` type($places) `,` type($sorted)
  }];
}

def RT_PositionInExpertOp : RT_Command<"position_in_expert", [], [AttrSizedOperandSegments]> {
  let summary = "Counts the earlier slots that have chosen the same expert";
  let description = [{
    As `nn.position_in_expert`; `scratch` has room for what is counted and for an
    order of positions.

    ```mlir
    %place, %scratch = rt.position_in_expert %ids, %positions experts = 4
        : (tensor<2x5x3xi64>, tensor<5xi64>) -> (tensor<2x5x3xi64>, tensor<13xi64>)
    ```

    Constraints:
    - (PI1) `scratch` has two elements for each expert, and one for each position.
  }];
  let arguments = (ins RT_IndexTensor:$ids, RT_IndexTensor:$positions, Optional<RT_IndexTensor>:$loads,
                       Optional<RT_IndexTensor>:$samples, ConfinedAttr<I64Attr, [IntPositive]>:$experts);
  let results = (outs RT_IndexTensor:$result, RT_IndexTensor:$scratch);
  let assemblyFormat = [{
    $ids `,` $positions (`behind` `(` $loads^ `,` $samples `)`)? `experts` `=` $experts attr-dict
    `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def RT_ConditionOp : RT_Command<"condition", []> {
  let summary = "Says when commands of a number need to run";
  let description = [{
    No command: those behind it with `nn.when` = `number` run only if the flag is set.

    ```mlir
    rt.condition %0 number = 3 : tensor<1xi1>
    ```
  }];
  let arguments = (ins RankedTensorOf<[I1]>:$flag, ConfinedAttr<I64Attr, [IntNonNegative]>:$number);
  let assemblyFormat = "$flag `number` `=` $number attr-dict `:` type($flag)";
}

def RT_WaitOp : RT_Command<"wait", ["getAlias"], [AttrSizedOperandSegments]> {
  let summary = "Ends a collective that has started";
  let description = [{
    The results are the collective's, now to be read. `sources` are its operands,
    named here because their memory must stay untouched until now.

    ```mlir
    %1:2 = rt.collective all_reduce(%0) group = [0, 1, 2] layout = [1, 6, 1, 0] purpose = "gradient"
      : (tensor<6xf32>) -> (tensor<6xf32>, !rt.token)
    %2 = rt.wait %1#1 values(%1#0) sources(%0) : (!rt.token, tensor<6xf32>, tensor<6xf32>) -> tensor<6xf32>
    ```

    Constraints:
    - (W1) the token comes from a collective whose results and operands are
      `values` and `sources`.
    - (W2) the results have the types of `values`.
  }];
  let arguments = (ins RT_TokenType:$token, Variadic<AnyRankedTensor>:$values, Variadic<AnyRankedTensor>:$sources);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    $token `values` `(` $values `)` `sources` `(` $sources `)` attr-dict `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def RT_CopyOp : RT_Command<"copy", ["getReuse"]> {
  let summary = "Moves a box of elements";
  let description = [{
    result[i...] = source[i...] over `shape`. A view is `[offset, strides...]`.
    With a destination, the result takes its memory, and elements outside the box
    keep their values; else the box covers the result. `axis_terms` are quadruples
    (axis, pre, size, elements): so many elements times the rank's index on that
    part of a mesh axis are added to the source's offset.

    ```mlir
    %1 = rt.copy %0 [0, 1, 6] to [0, 4, 1] shape = [6, 4] : (tensor<4x6xf32>) -> tensor<6x4xf32>
    ```

    Constraints:
    - (Y1) source and result have one element type; the destination has the result's type.
    - (Y2) views have an offset and one stride for each entry of `shape`, and stay inside their tensors.
    - (Y3) `axis_terms` has four numbers for each term.
  }];
  let arguments = (ins AnyRankedTensor:$source, Optional<AnyRankedTensor>:$destination,
                       DenseI64ArrayAttr:$source_view, DenseI64ArrayAttr:$result_view, DenseI64ArrayAttr:$shape,
                       DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$axis_terms);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = [{
    $source $source_view `to` $result_view `shape` `=` $shape (`into` `(` $destination^ `)`)?
    (`axis_terms` `=` $axis_terms^)? attr-dict `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def RT_FillOp : RT_Command<"fill", []> {
  let summary = "Writes one value everywhere";
  let description = [{
    ```mlir
    %0 = rt.fill 0.0 : f32 : tensor<4x6xf32>
    ```

    Constraints:
    - (F1) the value has the result's element type.
  }];
  let arguments = (ins TypedAttrInterface:$value);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$value attr-dict `:` type($result)";
  let hasVerifier = 1;
}

def RT_AliasOp : RT_Command<"alias", ["getAlias"]> {
  let summary = "Contiguous elements of a buffer under another shape";
  let description = [{
    No command: the result lies inside the source's memory, `offset` elements
    from its start, plus those of `axis_terms` (see rt.copy). `reach` is where the
    last rank's part ends, in elements; the source's buffer is made that large
    (tiles of a padded dimension end past it).

    ```mlir
    %1 = rt.alias %0 offset = 6 : (tensor<4x6xf32>) -> tensor<2x3xf32>
    ```

    Constraints:
    - (V1) source and result have one element type.
    - (V2) the offset is not negative, nor are the numbers in `axis_terms`.
    - (V3) without `reach`, the result ends inside the source on every rank.
    - (V4) `axis_terms` has four numbers for each term.
  }];
  let arguments = (ins AnyRankedTensor:$source, I64Attr:$offset,
                       DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$axis_terms,
                       DefaultValuedAttr<I64Attr, "0">:$reach);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = [{
    $source `offset` `=` $offset (`axis_terms` `=` $axis_terms^)? (`reach` `=` $reach^)? attr-dict
    `:` functional-type($source, $result)
  }];
  let hasVerifier = 1;
}

#endif
