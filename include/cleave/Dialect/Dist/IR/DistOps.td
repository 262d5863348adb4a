//===- DistOps.td - operations of the sharding dialect -----------*- tablegen -*-===//

#ifndef CLEAVE_DIALECT_DIST_IR_DISTOPS
#define CLEAVE_DIALECT_DIST_IR_DISTOPS

include "cleave/Dialect/Dist/IR/DistAttrs.td"
include "cleave/Dialect/Dist/IR/DistInterfaces.td"
include "cleave/Dialect/Dist/IR/DistRankOps.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Dist_MeshOp : Dist_Op<"mesh", [Symbol]> {
  let summary = "Declares a mesh of ranks";
  let description = [{
    The axes have names and are listed in order, the axis with the slowest links first.
    The number of a rank is its row-major index over the axes. `links` names, for each
    axis, the class of the links between the ranks along the axis, such as "intra"
    (within a node) or "inter" (between nodes); cluster.toml gives the speed of each
    class. For an axis with links between nodes, `within` says how many consecutive
    ranks along the axis share a node; a sub-axis whose ranks share a node has links of
    class "intra".

    ```mlir
    dist.mesh @m <["data"=2, "tensor"=4]>
    dist.mesh @n <["data"=2, "tensor"=4]> links ["inter", "intra"]
    dist.mesh @o <["expert"=8]> links ["inter"] within [4]
    ```

    Constraints (the verifier's code cites them by these labels):
    - (M1) axis names are distinct and not empty; sizes are positive, and their
      product is below 2^31.
    - (M2) `links`, if given, names one class of links for each axis.
    - (M3) `within`, if given, has for each axis a divisor of the size of the axis.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, Dist_MeshAttr:$mesh,
                       OptionalAttr<StrArrayAttr>:$links, OptionalAttr<DenseI64ArrayAttr>:$within);
  let assemblyFormat = "$sym_name $mesh (`links` $links^)? (`within` $within^)? attr-dict";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Returns the link class of a sub-axis, "intra" if the mesh has no `links`.
    ::llvm::StringRef linkOf(AxisRefAttr axis);
    /// Returns the mesh that `name` refers to, looked up from `from`, or null.
    static MeshOp lookup(::mlir::Operation *from, ::mlir::FlatSymbolRefAttr name);
  }];
}

def Dist_ConstrainOp : Dist_Op<"constrain", [Pure, SameOperandsAndResultType,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "Requires a sharding of a value";
  let description = [{
    The operation is the identity. In programs that are not partitioned yet, it states
    that the result has the given sharding. Propagation spreads the sharding, and
    partitioning turns the operation into a reshard if the operand has another layout.
    `purpose` becomes the purpose of this reshard's collectives, such as `gradient`;
    without `purpose`, it follows from the kind of value.

    ```mlir
    %1 = dist.constrain %0 <@m, [{"x"}, {?} ]> : tensor<4x6xf32>
    %3 = dist.constrain %2 <@m, [{"x"}, {} ]> purpose gradient : tensor<4x6xf32>
    ```

    Constraints: those labelled (S2), (S3) and (S4) in `#dist.sharding`.
  }];
  let arguments = (ins AnyRankedTensor:$input, Dist_ShardingAttr:$sharding,
                       OptionalAttr<Dist_PurposeAttr>:$purpose);
  let results = (outs AnyRankedTensor:$result);
  let builders = [
    OpBuilder<(ins "::mlir::Value":$input, "::cleave::dist::ShardingAttr":$sharding), [{
      build($_builder, $_state, input.getType(), input, sharding, PurposeAttr());
    }]>,
    OpBuilder<(ins "::mlir::Type":$type, "::mlir::Value":$input,
                   "::cleave::dist::ShardingAttr":$sharding), [{
      build($_builder, $_state, type, input, sharding, PurposeAttr());
    }]>];
  let assemblyFormat = "$input $sharding (`purpose` `` $purpose^)? attr-dict `:` type($input)";
}

//===----------------------------------------------------------------------===//
// Collectives of the local phase
//===----------------------------------------------------------------------===//

class Dist_CollectiveOp<string mnemonic, list<Trait> traits = []>
    : Dist_Op<mnemonic, !listconcat([Pure,
        DeclareOpInterfaceMethods<SymbolUserOpInterface>,
        DeclareOpInterfaceMethods<Dist_CollectiveOpInterface,
                                  ["getSentBytes", "getPayloadBytes"]>], traits)>;

def Dist_AllReduceOp : Dist_CollectiveOp<"all_reduce"> {
  let summary = "Combines the values that the ranks of a group hold";
  let description = [{
    Every rank of a group receives the elementwise sum (or maximum, minimum)
    over the group. Sums of integers wrap to the width of the element, so the sum of i1
    elements is their parity. Several operands are sent as one message.

    ```mlir
    %2:2 = dist.all_reduce sum %0, %1 over @m {"data"} purpose gradient
        : tensor<4x6xf32>, tensor<6xf32>
    ```

    Constraints (the verifier's code cites them by these labels):
    - (C1) every axis is an axis of the mesh, no axis is used twice, and sub-axes divide
      their axis.
    - (C2) there is at least one operand, and there are as many results as operands.
    - (AR1) results have the types of the operands.
  }];
  let arguments = (ins Dist_ReduceKindAttr:$kind, Variadic<AnyRankedTensor>:$inputs,
                       FlatSymbolRefAttr:$mesh, Dist_AxisListAttr:$axes,
                       Dist_PurposeAttr:$purpose);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    `` $kind $inputs `over` $mesh custom<AxisList>($axes) `purpose` `` $purpose
    attr-dict `:` custom<SameTypes>(type($inputs), type($results))
  }];
}

def Dist_AllGatherOp : Dist_CollectiveOp<"all_gather"> {
  let summary = "Gives every rank of a group the concatenation of all tiles";
  let description = [{
    The tiles are concatenated along a dimension, in group order. If the size of the
    group does not divide the size of the whole dimension, the last elements of the
    result are padding, and an `nn.slice` after the operation removes them.

    ```mlir
    %1 = dist.all_gather %0 dims [0] over @m {"x"} purpose activation
        : (tensor<2x6xf32>) -> tensor<8x6xf32>
    ```

    Constraints (the verifier's code cites them by these labels):
    (C1) and (C2) of `dist.all_reduce`, and
    - (AG1) `dims` has, for each operand, one dimension of the operand.
    - (AG2) a result has the shape of its operand, except that the dimension in
      `dims`, along which tiles are gathered, is multiplied by the size of the
      group.
  }];
  let arguments = (ins Variadic<AnyRankedTensor>:$inputs, DenseI64ArrayAttr:$dims,
                       FlatSymbolRefAttr:$mesh, Dist_AxisListAttr:$axes,
                       Dist_PurposeAttr:$purpose);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    $inputs `dims` $dims `over` $mesh custom<AxisList>($axes) `purpose` `` $purpose
    attr-dict `:` functional-type($inputs, $results)
  }];
}

def Dist_ReduceScatterOp : Dist_CollectiveOp<"reduce_scatter"> {
  let summary = "Combines values and gives each rank one tile of the result";
  let description = [{
    The operation is an all-reduce after which rank i of the group keeps only tile i
    along a dimension. The size of the group must divide the size of this dimension; if
    necessary, an `nn.pad` before the operation adds padding.

    ```mlir
    %1 = dist.reduce_scatter sum %0 dims [0] over @m {"x"} purpose gradient
        : (tensor<8x6xf32>) -> tensor<2x6xf32>
    ```

    Constraints (the verifier's code cites them by these labels):
    (C1) and (C2) of `dist.all_reduce`, and
    - (RS1) `dims` has, for each operand, one dimension of the operand.
    - (RS2) a result has the shape of its operand, except that the dimension in
      `dims` is divided by the size of the group, without remainder.
  }];
  let arguments = (ins Dist_ReduceKindAttr:$kind, Variadic<AnyRankedTensor>:$inputs,
                       DenseI64ArrayAttr:$dims, FlatSymbolRefAttr:$mesh,
                       Dist_AxisListAttr:$axes, Dist_PurposeAttr:$purpose);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    `` $kind $inputs `dims` $dims `over` $mesh custom<AxisList>($axes) `purpose` `` $purpose
    attr-dict `:` functional-type($inputs, $results)
  }];
}

def Dist_AllToAllOp : Dist_CollectiveOp<"all_to_all"> {
  let summary = "Splits one dimension and gathers another";
  let description = [{
    Rank i of a group sends block j along the split dimension to rank j, and
    concatenates the received blocks along the concatenated dimension in group order.
    Both dimensions may contain padding. The size of the group must divide the size of
    the split dimension.

    ```mlir
    %1 = dist.all_to_all %0 split [0] concat [1] over @m {"x"} purpose activation
        : (tensor<8x6xf32>) -> tensor<2x24xf32>
    ```

    Constraints (the verifier's code cites them by these labels):
    (C1) and (C2) of `dist.all_reduce`, and
    - (AA1) `split` and `concat` have, for each operand, two different dimensions of the
      operand.
    - (AA2) a result has the shape of its operand, with the split dimension
      divided by the size of the group, without remainder, and the concatenated
      dimension multiplied by it.
  }];
  let arguments = (ins Variadic<AnyRankedTensor>:$inputs,
                       DenseI64ArrayAttr:$split_dims, DenseI64ArrayAttr:$concat_dims,
                       FlatSymbolRefAttr:$mesh, Dist_AxisListAttr:$axes,
                       Dist_PurposeAttr:$purpose);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    $inputs `split` $split_dims `concat` $concat_dims `over` $mesh
    custom<AxisList>($axes) `purpose` `` $purpose
    attr-dict `:` functional-type($inputs, $results)
  }];
}

def Dist_AllToAllVOp : Dist_CollectiveOp<"all_to_all_v", [AllTypesMatch<["sent", "received"]>]> {
  let summary = "Sends a different number of rows to each rank of a group";
  let description = [{
    The operand has the shape [ranks, rows, ...]: it consists of one block of
    rows for each rank of the group. Rank i sends rank j the first sent[j] rows
    of its block j. On rank j these rows become the first rows of block i of the
    result; rank j already knows their number, received[i]. The remaining rows
    of a block are undefined and must not be read. `expect` is used only by the
    cost model. It is the number of rows that a rank is assumed to send in
    total, in equal parts to all ranks of the group, itself included. If this
    number depends on a rank's index on some mesh axes, `by` lists these axes,
    and `expect` has one number for each combination of indices on them, in
    row-major order. With `home` the rows are on their way back (combine): a
    rank returns to each other rank the rows that it received from that rank.

    ```mlir
    %1 = dist.all_to_all_v %0 sent %s received %r expect [5] over @m {"x"} purpose expert
        : tensor<4x5x6xf32> counts tensor<4xi64>
    %2 = dist.all_to_all_v %1 sent %r received %s expect [5, 5, 5, 2] by {"x"} home over @m {"x"} purpose expert
        : tensor<4x5x6xf32> counts tensor<4xi64>
    ```

    Constraints (the verifier's code cites them by these labels):
    (C1) of `dist.all_reduce`, and
    - (AV1) there is one operand besides the counts. The first dimension of the operand
      has the size of the group, and the result has the type of the operand.
    - (AV2) `sent` and `received` are vectors with one 64-bit integer for each
      rank of the group.
    - (AV3) without `by`, `expect` has one number; with `by`, it has one number
      for each combination of indices on the axes that `by` lists. No number is
      negative, or more than the number of rows of the operand.
  }];
  let arguments = (ins Variadic<AnyRankedTensor>:$inputs,
                       RankedTensorOf<[I64]>:$sent, RankedTensorOf<[I64]>:$received,
                       DenseI64ArrayAttr:$expected, OptionalAttr<Dist_AxisListAttr>:$by,
                       UnitAttr:$home, FlatSymbolRefAttr:$mesh, Dist_AxisListAttr:$axes,
                       Dist_PurposeAttr:$purpose);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    $inputs `sent` $sent `received` $received `expect` $expected
    (`by` custom<AxisList>($by)^)? (`home` $home^)?
    `over` $mesh custom<AxisList>($axes) `purpose` `` $purpose
    attr-dict `:` custom<SameTypes>(type($inputs), type($results)) `counts` type($sent)
  }];
}

def Dist_PlanRowsOp : Dist_Op<"plan_rows", [Pure]> {
  let summary = "Plans which rows are sent to which rank, in one or several exchange rounds";
  let description = [{
    Rows are numbered over all dimensions of `ids` in row-major order. Each rank
    holds `tile` consecutive ids, so row r is sent to rank ids[r] / tile. The
    receive buffer of a rank has a fixed number of places, for one row each. If
    more rows are sent to the rank than the buffer holds, it is filled several
    times, in several exchange rounds. The rows that are sent to a rank take its
    places in order, and the places of the first round are filled first. A row
    with an id outside [0, tile * ranks) is not sent. For every place of every
    rank in every round, `sources` gives the row that takes the place, and
    `sent` gives the id of this row minus the first id of the rank's tile; both
    are -1 for an empty place. `places` gives the place of each row, counted
    over all rounds and ranks, or -1 for a row that is not sent. `counts` gives
    the number of rows that are sent to each rank in each round.

    ```mlir
    %sources, %places, %sent, %counts = dist.plan_rows %ids tile 3
        : tensor<5x2xi64> -> tensor<2x4x5xi64>, tensor<10xi64>, tensor<2x4x5xi64>, tensor<4x2xi64>
    ```

    Constraints (the verifier's code cites them by these labels):
    - (PR1) `tile` is positive.
    - (PR2) `sources` and `sent` are [rounds, ranks, places], and the places of one rank
      in all rounds together suffice for all rows. `places` has one number for each row,
      and `counts` is [ranks, rounds].
  }];
  let arguments = (ins RankedTensorOf<[I64]>:$ids, ConfinedAttr<I64Attr, [IntPositive]>:$tile);
  let results = (outs RankedTensorOf<[I64]>:$sources, RankedTensorOf<[I64]>:$places,
                      RankedTensorOf<[I64]>:$sent, RankedTensorOf<[I64]>:$counts);
  let assemblyFormat = [{
    $ids `tile` $tile attr-dict
    `:` type($ids) `->` type($sources) `,` type($places) `,` type($sent) `,` type($counts)
  }];
  let hasVerifier = 1;
}

def Dist_SortRowsOp : Dist_Op<"sort_rows", [Pure]> {
  let summary = "Sorts rows by id, so that rows with equal ids are adjacent";
  let description = [{
    Rows are numbered over all dimensions of `ids` in row-major order. The rows are sorted
    by their ids; rows of equal ids keep their order, and rows with an id outside
    [0, groups) come last. `order` gives the row at each place of the sorted order,
    `places` gives the place of each row, and `sorted` gives the id of the row at each
    place, or -1 if the id is outside [0, groups).

    ```mlir
    %order, %places, %sorted = dist.sort_rows %ids groups 3
        : tensor<5x2xi64> -> tensor<10xi64>, tensor<5x2xi64>, tensor<10xi64>
    ```

    Constraints (the verifier's code cites them by these labels):
    - (SR1) `groups` is positive.
    - (SR2) `places` has the sizes of `ids`; `order` and `sorted` have one number for
      each row.
  }];
  let arguments = (ins RankedTensorOf<[I64]>:$ids, ConfinedAttr<I64Attr, [IntPositive]>:$groups);
  let results = (outs RankedTensorOf<[I64]>:$order, RankedTensorOf<[I64]>:$places,
                      RankedTensorOf<[I64]>:$sorted);
  let assemblyFormat = [{
    $ids `groups` $groups attr-dict
    `:` type($ids) `->` type($order) `,` type($places) `,` type($sorted)
  }];
  let hasVerifier = 1;
}

def Dist_ConditionOp : Dist_Op<"condition"> {
  let summary = "Gives a condition a number, by which other operations refer to it";
  let description = [{
    The operation gives its operand, a condition that is computed at run time,
    the number `number`. An operation of the function with an attribute
    `nn.when` that holds the same number is conditional: if the condition is
    false, the results of the operation are not read, and it need not run. If a
    conditional operation is a collective, the condition has the same value on
    all ranks of its group.

    ```mlir
    dist.condition %0 number 3 : tensor<1xi1>
    ```
  }];
  let arguments = (ins RankedTensorOf<[I1]>:$flag, ConfinedAttr<I64Attr, [IntNonNegative]>:$number);
  let assemblyFormat = "$flag `number` $number attr-dict `:` type($flag)";
}

def Dist_WindowOp : Dist_CollectiveOp<"window"> {
  let summary = "Gives every rank of a group a window of a sharded dimension";
  let description = [{
    Dimension `dim` has `size` elements, of which each rank holds a tile. Rank r of the
    group receives the elements `base + r * step + i * stride` for i = 0, 1, ... up to
    the size of the result; indices outside the dimension give zeros. Windows may
    overlap, run backwards (`stride` < 0), or be the same on all ranks (`step` = 0).
    Slices, pads, concatenations and reversals of a sharded dimension use this
    operation, because it moves only elements that another rank needs; convolutions use
    it to exchange their halos. `whole` is the unsharded size of the dimension that the
    ranks compute from their windows: the dimension of the result itself, or the output
    dimension of a convolution that reads the result.

    ```mlir
    // 10 elements on 4 ranks, moved by one to the right.
    %1 = dist.window %0 dim 0 size 10 base -1 step 3 stride 1 whole 10 over @m {"x"} purpose activation
        : (tensor<3x6xf32>) -> tensor<3x6xf32>
    ```

    Constraints (the verifier's code cites them by these labels):
    (C1) and (C2) of `dist.all_reduce`, and
    - (W1) there is one operand, `dim` is a dimension of the operand, and the operand's
      size in `dim` is that of a tile of `size` elements.
    - (W2) `stride` is not 0.
    - (W3) the result has the shape of the operand except in dimension `dim`.
    - (W4) `whole` is not negative.
  }];
  let arguments = (ins Variadic<AnyRankedTensor>:$inputs, I64Attr:$dim, I64Attr:$size,
                       I64Attr:$base, I64Attr:$step, I64Attr:$stride,
                       I64Attr:$whole,
                       FlatSymbolRefAttr:$mesh, Dist_AxisListAttr:$axes,
                       Dist_PurposeAttr:$purpose);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    $inputs `dim` custom<Dim>($dim) `size` custom<Dim>($size) `base` custom<Dim>($base)
    `step` custom<Dim>($step) `stride` custom<Dim>($stride)
    `whole` custom<Dim>($whole)
    `over` $mesh custom<AxisList>($axes) `purpose` `` $purpose
    attr-dict `:` functional-type($inputs, $results)
  }];
}

def Dist_CollectivePermuteOp : Dist_CollectiveOp<"collective_permute"> {
  let summary = "Moves whole tiles between the ranks of a group";
  let description = [{
    `pairs` lists source 0, target 0, source 1, target 1, ..., as indices of ranks in
    the group: each source sends its tile to its target. A rank that is no target gets
    zeros.

    ```mlir
    %1 = dist.collective_permute %0 pairs [0, 1, 1, 0] over @m {"x"} purpose activation
        : tensor<2x6xf32>
    ```

    Constraints (the verifier's code cites them by these labels):
    (C1) and (C2) of `dist.all_reduce`, and
    - (CP1) each result has the type of its operand.
    - (CP2) `pairs` has an even number of entries, each an index in the group;
      no source and no target is listed twice.
  }];
  let arguments = (ins Variadic<AnyRankedTensor>:$inputs, DenseI64ArrayAttr:$pairs,
                       FlatSymbolRefAttr:$mesh, Dist_AxisListAttr:$axes,
                       Dist_PurposeAttr:$purpose);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    $inputs `pairs` $pairs `over` $mesh custom<AxisList>($axes) `purpose` `` $purpose
    attr-dict `:` custom<SameTypes>(type($inputs), type($results))
  }];
}

def Dist_ExchangeOp : Dist_CollectiveOp<"exchange"> {
  let summary = "Assembles every rank's tile from tiles of other ranks";
  let description = [{
    The operation reshards a tensor in one step. The target tile of a rank
    consists of rectangular ranges of elements that other ranks hold. The rank
    receives each range from a rank that holds it, and sends ranges of its own
    tile to the ranks that need them. If several ranks hold a range, they send
    equal parts of it. If the ranks hold partial sums (`from` is partial over
    some of `axes`), the ranges are reduced. If `to` is partial over some of
    `axes`, the result is a sum of several terms, one for each position on these
    axes. Every element is placed in only one of these terms and is zero in the
    others: preferably in a term whose ranks already hold the element; if there
    are several such terms, or none, the elements are divided equally among
    them, or among all terms. If `from` is partial as well, the operand is a sum
    of terms, too, and each element of each term of the operand is placed in
    only one term of the result. Elements that a rank already holds are not
    sent, and padding is never sent. The tiles of `from` and `to` need not nest,
    and the sizes of axes need not divide those of dimensions.

    With `rounds` = 2, elements are sent in two steps, and the elements that
    several ranks need are divided equally among these ranks. In the first round
    each rank assembles only its share; in the second round it sends its share
    to the other ranks. Partial sums are then reduced only once, as in a
    reduce-scatter followed by an all-gather.

    `global` has the types of the unsharded tensors. These types and the
    shardings determine which ranges of elements each rank sends and receives.

    ```mlir
    %1 = dist.exchange %0 from [#dist.sharding<@m, [{"x"}, {} ]>] to [#dist.sharding<@m, [{}, {"x"} ]>]
        of [tensor<10x6xf32>] over @m {"x"} purpose activation
        : (tensor<3x6xf32>) -> tensor<10x2xf32>
    ```

    Constraints (the verifier's code cites them by these labels):
    (C1) and (C2) of `dist.all_reduce`, and
    - (EX1) `from`, `to` and `global` have one entry for each operand, and the
      shardings fit the mesh and the types.
    - (EX2) an operand is a tile of the global type under `from`, a result is a tile of
      the global type under `to`, with elements of the operand's width.
    - (EX3) the axes that are not in `axes` and over which `from` is partial are
      the same as those of `to`, with the same kind (sum, maximum or minimum).
      If `to` is partial over axes in `axes`, its kind is a sum. If `from` is
      partial over axes in `axes`, too, and `rounds` is 1, the kind of `from` is
      also a sum.
    - (EX4) a mesh axis that is not in `axes` splits no dimension, or splits the
      same dimension in `from` and `to`. In a dimension's list of axes, axes
      that are not in `axes` come first. Alone, these first axes would split the
      dimension into larger tiles; each of these larger tiles must consist of
      whole tiles of `from`, and of whole tiles of `to`.
    - (EX5) `rounds` is 1 or 2.
  }];
  let arguments = (ins Variadic<AnyRankedTensor>:$inputs,
                       TypedArrayAttrBase<Dist_ShardingAttr, "shardings">:$from,
                       TypedArrayAttrBase<Dist_ShardingAttr, "shardings">:$to,
                       TypeArrayAttr:$global,
                       FlatSymbolRefAttr:$mesh, Dist_AxisListAttr:$axes,
                       Dist_PurposeAttr:$purpose, DefaultValuedAttr<I64Attr, "1">:$rounds);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    $inputs `from` $from `to` $to `of` $global `over` $mesh custom<AxisList>($axes)
    `purpose` `` $purpose attr-dict `:` functional-type($inputs, $results)
  }];
}

#endif
