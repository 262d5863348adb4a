// Commands of the runtime, as operations on tensor values.

#ifndef CLEAVE_DIALECT_RT_IR_RTOPS_TD
#define CLEAVE_DIALECT_RT_IR_RTOPS_TD

include "cleave/Dialect/RT/IR/RTControlOps.td"
include "cleave/Dialect/RT/IR/RTProductOps.td"

def RT_LaunchOp : RT_Command<"launch", ["getReuse"], [DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "Runs all parallel iterations of a kernel";
  let description = [{
    The command divides the kernel's iterations [0, extent) into ranges of at least
    `grain` iterations (the last range may be smaller) and calls `kernel` on each range,
    possibly from several threads. The kernel's arguments are the operands, then the
    results. `inplace` lists pairs (result, operand) for which the result may take the
    operand's memory.

    ```mlir
    %1 = rt.launch @kernel_0(%0) extent = 4 grain = 1 inplace = [0, 0] : (tensor<4x6xf32>) -> tensor<4x6xf32>
    ```

    Constraints (the verifier's code cites them by these labels):
    - (L1) `kernel` names a function; the types of its arguments and results are
      those of the operands and results.
    - (L2) `extent` is not negative and `grain` is positive.
    - (L3) `inplace` has an even number of entries; each pair is the index of a result
      and the index of an operand that is at least as large as the result.
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

def RT_CollectiveOp : RT_Command<"collective", ["getReuse"], [AttrSizedOperandSegments]> {
  let summary = "Communication among the ranks of a group";
  let description = [{
    `group` lists the sub-axes of the mesh that a group of N ranks spans, as
    triples (axis, pre, size): the index of a mesh axis, and the pre-size and
    the size of a sub-axis of this axis. As in Shardy, the pre-size is the
    product of the sizes of the sub-axes that are major to it. The N members of
    a group are ordered row-major over the sub-axes in `group`. Operand i
    becomes result i, and all operands are sent as one message. With a token as
    last result the command only starts the collective, and `rt.wait` ends it.

    The elements of an operand are treated as a row-major array of two or three
    dimensions. `layout` gives the sizes of these dimensions: four numbers
    (outer, inner, outer', inner') for each operand, where outer' and inner'
    belong to the result and are used only by the kinds that name them below. An
    all-gather takes [outer, inner] to [outer, N, inner], a reduce-scatter takes
    [outer, N, inner] to [outer, inner], and an all-to-all takes [outer, N,
    inner] to [outer', N, inner'].

    An exchange changes the sharding of a tensor, as `dist.exchange` does. For
    an exchange, `inner` and `inner'` are the numbers of elements of a rank's
    tile before and after. `exchanges` describes both shardings of each operand
    by a list of numbers: the rank and the shape of the unsharded tensor; for
    each dimension of the source sharding a count and that many triples (axis,
    pre, size); the same for the target sharding; a count and triples of the
    axes that are reduced; a count and triples of the axes over which the result
    has partial sums; and the number of rounds (1 or 2) in which elements are
    sent.

    An all_to_all_v sends rows, such as those of tokens, between ranks. It takes
    [N, outer, inner] to [N, outer, inner], that is, up to `outer` rows of
    `inner` elements for each member. The two operands `counts` have the number
    of rows that are sent to each member and received from each member.
    `expected`, `by` and `home` are used only to model the time of an
    all_to_all_v. `expected` has the number of rows that a rank is assumed to
    send. If this number depends on a rank's index on some sub-axes of the mesh,
    `by` lists these sub-axes (as triples, like `group`), and `expected` has one
    number for each combination of indices on them, in row-major order. With
    `home`, the rows of an earlier all_to_all_v are sent back, so a rank is
    assumed to receive this number of rows, and not to send it.

    ```mlir
    %1 = rt.collective all_gather(%0) group = [1, 1, 2] layout = [4, 3, 1, 0] purpose = "activation"
      : (tensor<4x3xf32>) -> tensor<4x6xf32>
    ```

    Constraints (the verifier's code cites them by these labels):
    - (C1) there is at least one operand besides `counts`, and there are as many results
      as such operands, optionally followed by a token. All these operands and results
      have the same element type.
    - (C2) `group` consists of triples of one non-negative and two positive numbers.
    - (C3) `layout` has four numbers for each operand, and the numbers of elements of
      the operand and of its result are the products of the sizes listed above. For an
      all-reduce, a permute and a broadcast, both are outer times inner.
    - (C4) a permute has a source for each member, that is, the index of the member
      whose operand it receives (-1 for zeros); other kinds have no sources.
    - (C5) an exchange has a description of each operand in `exchanges`; other kinds
      have no `exchanges`.
    - (C6) an all_to_all_v has two operands `counts`, with one number for each
      member of the group; other kinds have no `counts`.
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
    /// Returns `exchanges` as structs of the program (cleave/program.h), or nullopt if the numbers are malformed.
    std::optional<std::vector<::cleave::program::Exchange>> describeExchanges();
    /// Returns the tensors that the collective computes, without the token.
    ::mlir::ResultRange getValues() { return getResults().take_front(getInputs().size()); }
    /// Returns the token for the rt.wait that ends the collective; null if this command also ends it.
    ::mlir::Value getToken() { return getNumResults() > getInputs().size() ? getResults().back() : ::mlir::Value(); }
  }];
  let hasVerifier = 1;
}

def RT_PlanRowsOp : RT_Command<"plan_rows", []> {
  let summary = "Plans which rows are sent to which rank, in which exchange round";
  let description = [{
    The rows are those of tokens, which are sent to the ranks of their experts. The
    command computes the same results as `dist.plan_rows`, whose description defines
    them.

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
  let summary = "Sorts rows by id, so that rows with equal ids are adjacent";
  let description = [{
    The command computes the same results as `dist.sort_rows`, whose description
    defines them.

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
  let summary = "Numbers the token-expert pairs of each expert in token order";
  let description = [{
    The command computes the result of `nn.position_in_expert`. `scratch` is
    memory for intermediate results: two counts of token-expert pairs for each
    expert, and the order of the tokens by their position in the sequence.

    ```mlir
    %place, %scratch = rt.position_in_expert %ids, %positions experts = 4
        : (tensor<2x5x3xi64>, tensor<5xi64>) -> (tensor<2x5x3xi64>, tensor<13xi64>)
    ```

    Constraints (the verifier's code cites them by these labels):
    - (PI1) `scratch` has two elements for each expert, and one for each token
      of a sample.
  }];
  let arguments = (ins RT_IndexTensor:$ids, RT_IndexTensor:$positions, Optional<RT_IndexTensor>:$loads,
                       Optional<RT_IndexTensor>:$samples, ConfinedAttr<I64Attr, [IntPositive]>:$experts);
  let results = (outs RT_IndexTensor:$result, RT_IndexTensor:$scratch);
  let assemblyFormat = [{
    $ids `,` $positions (`after` `(` $loads^ `,` $samples `)`)? `experts` `=` $experts attr-dict
    `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def RT_ConditionOp : RT_Command<"condition", []> {
  let summary = "Gives a condition a number, by which later commands refer to it";
  let description = [{
    The operation gives its operand, a condition that is computed at run time,
    the number `number`. A later command with an attribute `nn.when` that holds
    the same number runs only if the condition is true. The operation itself is
    not a command of the runtime.

    ```mlir
    rt.condition %0 number = 3 : tensor<1xi1>
    ```
  }];
  let arguments = (ins RankedTensorOf<[I1]>:$flag, ConfinedAttr<I64Attr, [IntNonNegative]>:$number);
  let assemblyFormat = "$flag `number` `=` $number attr-dict `:` type($flag)";
}

def RT_WaitOp : RT_Command<"wait", ["getAlias"], [AttrSizedOperandSegments]> {
  let summary = "Waits for the end of an asynchronous collective";
  let description = [{
    The command waits for the collective that has returned `token`. Its results are those
    of the collective (`values`), which may be read only after the wait. `sources` are the
    operands of the collective, listed here because their memory must not be reused before
    the wait.

    ```mlir
    %1:2 = rt.collective all_reduce(%0) group = [0, 1, 2] layout = [1, 6, 1, 0] purpose = "gradient"
      : (tensor<6xf32>) -> (tensor<6xf32>, !rt.token)
    %2 = rt.wait %1#1 values(%1#0) sources(%0) : (!rt.token, tensor<6xf32>, tensor<6xf32>) -> tensor<6xf32>
    ```

    Constraints (the verifier's code cites them by these labels):
    - (W1) the token comes from a collective that has the results `values` and the
      operands `sources`.
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
  let summary = "Copies a strided range of elements";
  let description = [{
    result[i...] = source[i...] for all indices i below `shape`, where source
    and result are addressed by views `[offset, strides...]`. With a
    destination, the result takes the destination's memory, and elements of the
    destination to which nothing is copied keep their values. Without a
    destination, a value is copied to every element of the result. `axis_terms`
    consists of quadruples (axis, pre, size, elements). The first three numbers
    describe a sub-axis of the mesh, as in `rt.collective`; the quadruple adds
    `elements` times the rank's index on this sub-axis to the source's offset.

    ```mlir
    %1 = rt.copy %0 [0, 1, 6] to [0, 4, 1] shape = [6, 4] : (tensor<4x6xf32>) -> tensor<6x4xf32>
    ```

    Constraints (the verifier's code cites them by these labels):
    - (Y1) source and result have the same element type; the destination has the result's
      type.
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
  let summary = "Sets all elements to one value";
  let description = [{
    ```mlir
    %0 = rt.fill 0.0 : f32 : tensor<4x6xf32>
    ```

    Constraints (the verifier's code cites them by these labels):
    - (F1) the value has the result's element type.
  }];
  let arguments = (ins TypedAttrInterface:$value);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$value attr-dict `:` type($result)";
  let hasVerifier = 1;
}

def RT_AliasOp : RT_Command<"alias", ["getAlias"]> {
  let summary = "Uses contiguous elements of a buffer as a tensor of another shape";
  let description = [{
    The operation moves no data and is not a command of the runtime. The result is a
    part of the source's memory. It begins `offset` elements after the start of the
    source, plus a distance that depends on the rank and that `axis_terms` gives as in
    `rt.copy`. `reach` is the largest end of this part on any rank, in elements from
    the start of the source. If a dimension is not divisible by the number of its
    tiles, the last tile ends beyond the end of the source, and so does `reach`. The
    source's buffer has at least `reach` elements.

    ```mlir
    %1 = rt.alias %0 offset = 6 : (tensor<4x6xf32>) -> tensor<2x3xf32>
    ```

    Constraints (the verifier's code cites them by these labels):
    - (V1) source and result have the same element type.
    - (V2) the offset and the numbers in `axis_terms` are not negative.
    - (V3) if `reach` is not given, the result ends inside the source on every
      rank.
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
