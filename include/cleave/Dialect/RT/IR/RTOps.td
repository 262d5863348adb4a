// Commands, as operations on tensor values.

#ifndef CLEAVE_DIALECT_RT_IR_RTOPS_TD
#define CLEAVE_DIALECT_RT_IR_RTOPS_TD

include "cleave/Dialect/RT/IR/RTProductOps.td"

def RT_LaunchOp : RT_Command<"launch", ["getReuse"], [DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "Runs a kernel on all its rows";
  let description = [{
    Calls `kernel` on pieces of the rows [0, extent), none smaller than `grain`
    but the last, perhaps from several threads. The kernel's arguments are the
    operands, then the results. `inplace` lists pairs (result, operand): the
    result may be where the operand does.

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

def RT_CollectiveOp : RT_Command<"collective", ["getReuse"], [AttrSizedOperandSegments]> {
  let summary = "Communication among the ranks of a group";
  let description = [{
    `group` lists (axis, pre, size) of the mesh's axes; members are ordered
    row-major over them. Operand i becomes result i, one message in all; `layout`
    has four numbers for each, (outer, inner, outer of the result, inner of the
    result): an all-gather takes [outer, inner] to [outer, N, inner], a
    reduce-scatter back, an all-to-all [outer, N, inner] to [outer', N, inner'].
    An exchange has the elements of its two tiles as `inner` and `inner'`, and
    `exchanges` says for each operand how the whole tensor is placed: its rank and
    shape; before, for each dimension, a count and so many triples (axis, pre,
    size); after, the same; a count and triples of the axes that are reduced; the
    same of those over which the result has partial sums; the number of rounds.
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
    $ids `,` $positions (`after` `(` $loads^ `,` $samples `)`)? `experts` `=` $experts attr-dict
    `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def RT_ConditionOp : RT_Command<"condition", []> {
  let summary = "Says when commands of a number need to run";
  let description = [{
    No command: those after it with `nn.when` = `number` run only if the flag is set.

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
    No command: the result is inside the source's memory, `offset` elements
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
