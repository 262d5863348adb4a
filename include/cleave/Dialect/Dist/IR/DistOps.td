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
    Axes are named, slowest link first; a rank is the row-major index over
    them. `links` gives each axis its link class. Of an axis whose links leave a
    node, `within` says how many ranks next to each other on it share one: a
    sub-axis within them has links of class "intra".

    ```mlir
    dist.mesh @m <["data"=2, "tensor"=4]>
    dist.mesh @n <["data"=2, "tensor"=4]> links ["inter", "intra"]
    dist.mesh @o <["expert"=8]> links ["inter"] within [4]
    ```

    Constraints:
    - (M1) axis names are distinct and not empty; sizes are positive, and their
      product is below 2^31.
    - (M2) there is one link class for each axis, where `links` is given.
    - (M3) `within`, where given, has a divisor of the size of each axis.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, Dist_MeshAttr:$mesh,
                       OptionalAttr<StrArrayAttr>:$links, OptionalAttr<DenseI64ArrayAttr>:$within);
  let assemblyFormat = "$sym_name $mesh (`links` $links^)? (`within` $within^)? attr-dict";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The link class of a sub-axis; "intra" where nothing is said.
    ::llvm::StringRef linkOf(AxisRefAttr axis);
    /// The mesh that `name` refers to as seen from `from`, or null.
    static MeshOp lookup(::mlir::Operation *from, ::mlir::FlatSymbolRefAttr name);
  }];
}

def Dist_ConstrainOp : Dist_Op<"constrain", [Pure, SameOperandsAndResultType,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "Requires a sharding of a value";
  let description = [{
    The identity. In the global phase it says that the result has the sharding
    given; propagation spreads it and partitioning turns it into a reshard
    where the operand is placed otherwise. `purpose` says what that reshard is for;
    without it the purpose is that of the value.

    ```mlir
    %1 = dist.constrain %0 <@m, [{"x"}, {?} ]> : tensor<4x6xf32>
    %3 = dist.constrain %2 <@m, [{"x"}, {} ]> purpose gradient : tensor<4x6xf32>
    ```

    Constraints: (S2), (S3), (S4) of `#dist.sharding`.
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
    over the group. Sums of integers wrap to the width of the element; that of i1
    is the parity. Several operands are one message.

    ```mlir
    %2:2 = dist.all_reduce sum %0, %1 over @m {"data"} purpose gradient
        : tensor<4x6xf32>, tensor<6xf32>
    ```

    Constraints:
    - (C1) every axis is one of the mesh, none is used twice, sub-axes divide.
    - (C2) there is at least one operand, and as many results.
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
  let summary = "Gives every rank of a group the tiles of all, end to end";
  let description = [{
    Lays the tiles along a dimension, in group order. Where the dimension did
    not divide, the last elements are padding and a `nn.slice` follows.

    ```mlir
    %1 = dist.all_gather %0 dims [0] over @m {"x"} purpose activation
        : (tensor<2x6xf32>) -> tensor<8x6xf32>
    ```

    Constraints: (C1), (C2), and
    - (AG1) `dims` has one entry for each operand, a dimension of it.
    - (AG2) a result has the shape of its operand, with that dimension times
      the size of the group.
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
  let summary = "Combines values and leaves each rank one tile of the outcome";
  let description = [{
    An all-reduce of which rank i of the group keeps tile i along a dimension.
    The dimension divides; a `nn.pad` goes before where it does not.

    ```mlir
    %1 = dist.reduce_scatter sum %0 dims [0] over @m {"x"} purpose gradient
        : (tensor<8x6xf32>) -> tensor<2x6xf32>
    ```

    Constraints: (C1), (C2), and
    - (RS1) `dims` has one entry for each operand, a dimension of it.
    - (RS2) a result has the shape of its operand, with that dimension divided
      by the size of the group, without remainder.
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
    lays what it receives along the concatenated dimension in group order. Both
    dimensions may be padded: the split one must divide.

    ```mlir
    %1 = dist.all_to_all %0 split [0] concat [1] over @m {"x"} purpose activation
        : (tensor<8x6xf32>) -> tensor<2x24xf32>
    ```

    Constraints: (C1), (C2), and
    - (AA1) `split` and `concat` have one entry for each operand, two different
      dimensions of it.
    - (AA2) a result has the shape of its operand, with the split dimension
      divided by the size of the group, without remainder, and the concatenated
      one times that size.
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
  let summary = "Sends each rank of a group the rows that are for it";
  let description = [{
    The first dimension counts the ranks of the group, the second rows. Rank i
    sends rank j the first sent[j] rows of its block j, which become the first
    rows of block i there: received[i] of them, as rank j knows already. What the
    result holds after those is undefined, and must not be read. `expect` is the
    number of rows that a rank is reckoned to have for all, itself included, alike
    for each; where ranks differ, one number for each position on the axes `by`.
    With `home` those rows come back: a rank sends each other one the rows that it
    has of it.

    ```mlir
    %1 = dist.all_to_all_v %0 sent %s received %r expect [5] over @m {"x"} purpose expert
        : tensor<4x5x6xf32> counts tensor<4xi64>
    %2 = dist.all_to_all_v %1 sent %r received %s expect [5, 5, 5, 2] by {"x"} home over @m {"x"} purpose expert
        : tensor<4x5x6xf32> counts tensor<4xi64>
    ```

    Constraints: (C1), and
    - (AV1) there is one operand beside the counts; its first dimension has the
      size of the group, and the result has its type.
    - (AV2) counts are one integer of 64 bits for each rank of the group.
    - (AV3) `expect` has one number, or as many as there are positions on `by`;
      none is negative, or more than the number of rows of the operand.
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
  let summary = "Where rows go that are sent to the ranks of what they choose";
  let description = [{
    Row r, over all dimensions of `ids` in row-major order, goes to rank
    ids[r] / tile, to the next free of its places, in order, those of the first round
    first. A row whose id is outside [0, tile * ranks) goes nowhere. Of every place
    of every rank in every round, `sources` is the row that goes there, and `sent` its
    id less the first one of the rank's tile; both are -1 where none does. `places` is
    the place of each row, counted over all rounds and ranks, or -1. `counts` is how
    many go to each rank in each round.

    ```mlir
    %sources, %places, %sent, %counts = dist.plan_rows %ids tile 3
        : tensor<5x2xi64> -> tensor<2x4x5xi64>, tensor<10xi64>, tensor<2x4x5xi64>, tensor<4x2xi64>
    ```

    Constraints:
    - (PR1) `tile` is positive.
    - (PR2) `sources` and `sent` are [rounds, ranks, places], and a rank has places
      for all rows; `places` has one number for each row, `counts` is [ranks, rounds].
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
  let summary = "The order of rows by what they choose";
  let description = [{
    Rows, over all dimensions of `ids` in row-major order, are sorted by their ids,
    those of one id in order; rows whose id is outside [0, groups) come last. `order`
    is the row at each place, `places` the place of each row, and `sorted` the id of
    the row at each place, or -1 where it is outside.

    ```mlir
    %order, %places, %sorted = dist.sort_rows %ids groups 3
        : tensor<5x2xi64> -> tensor<10xi64>, tensor<5x2xi64>, tensor<10xi64>
    ```

    Constraints:
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
  let summary = "Says when operations of a number need to run";
  let description = [{
    Where the flag is not set, nobody reads what operations with `nn.when` = `number`
    in the same function give, and they need not run. All ranks that meet in
    such a collective have the same flag.

    ```mlir
    dist.condition %0 number 3 : tensor<1xi1>
    ```
  }];
  let arguments = (ins RankedTensorOf<[I1]>:$flag, ConfinedAttr<I64Attr, [IntNonNegative]>:$number);
  let assemblyFormat = "$flag `number` $number attr-dict `:` type($flag)";
}

def Dist_WindowOp : Dist_CollectiveOp<"window"> {
  let summary = "Gives every rank of a group a window of a split dimension";
  let description = [{
    Dimension `dim` has `size` elements, of which each rank holds a tile. Rank r of
    the group receives the elements `base + r * step + i * stride` for
    i = 0, 1, ... up to the size of the result; indices outside the dimension
    give zeros. Windows may overlap, run backwards (`stride` < 0), or be the same
    on all ranks (`step` = 0). So slices, pads, concatenations and reversals
    move what is on another rank and nothing else, and convolutions get their
    neighbours' rows. `whole` is how many elements that dimension has of which
    the ranks' tiles are computed from the windows: the result's own, or the one
    of a convolution that reads it.

    ```mlir
    // 10 elements on 4 ranks, moved by one to the right.
    %1 = dist.window %0 dim 0 size 10 base -1 step 3 stride 1 whole 10 over @m {"x"} purpose activation
        : (tensor<3x6xf32>) -> tensor<3x6xf32>
    ```

    Constraints: (C1), (C2), and
    - (W1) there is one operand, `dim` is a dimension of it, and its size there is
      that of a tile of `size`.
    - (W2) `stride` is not 0.
    - (W3) the result has the shape of the operand but for dimension `dim`.
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
    `pairs` lists source and target, alternating, as indices in the group. A
    rank that is no target receives zeros.

    ```mlir
    %1 = dist.collective_permute %0 pairs [0, 1, 1, 0] over @m {"x"} purpose activation
        : tensor<2x6xf32>
    ```

    Constraints: (C1), (C2), and
    - (CP1) results have the types of the operands.
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
  let summary = "Assembles every rank's tile from the tiles of others";
  let description = [{
    Brings a tensor from one sharding to another at once: a rank receives each
    box of its target tile from a rank that holds it, and sends what it holds to
    those that need it; what several ranks hold they send in equal parts. Where
    the ranks hold partial sums (`from` is partial over some of `axes`) the boxes are
    reduced. Where `to` is partial over some of `axes`, every element (of every
    partial sum, if the ranks hold some) goes to one partial sum, to that of which most ranks
    hold it, and is zero in the others. Elements that a rank holds already are not
    sent, and padding never is, so tiles need not nest, nor need axes divide
    dimensions.

    In two rounds, every element is assembled on one of the ranks that are to have
    it, in equal parts, and goes from there to the others: what is reduced is then
    reduced once, as by a reduce-scatter and an all-gather.

    `global` has the types of the whole tensors; the boxes follow from them and
    the shardings.

    ```mlir
    %1 = dist.exchange %0 from [#dist.sharding<@m, [{"x"}, {} ]>] to [#dist.sharding<@m, [{}, {"x"} ]>]
        of [tensor<10x6xf32>] over @m {"x"} purpose activation
        : (tensor<3x6xf32>) -> tensor<10x2xf32>
    ```

    Constraints: (C1), (C2), and
    - (EX1) `from`, `to` and `global` have one entry for each operand, and the
      shardings fit the mesh and the types.
    - (EX2) an operand is a tile of the global type under `from`, a result one
      under `to`, as wide as the operand.
    - (EX3) over axes that are not in `axes`, `from` and `to` are partial alike and
      with the same kind. `to` is partial over axes of `axes` as a sum only, and
      in one round so is `from` then.
    - (EX4) an axis that is not in `axes` splits no dimension, or splits the same
      dimension in both, as a prefix of its axes whose tiles contain whole tiles
      of all of them.
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
