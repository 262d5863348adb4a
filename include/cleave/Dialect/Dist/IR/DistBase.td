//===- DistBase.td - the sharding dialect ------------------------*- tablegen -*-===//
//
// The dialect, its enumerations and base classes.
//
//===----------------------------------------------------------------------===//

#ifndef CLEAVE_DIALECT_DIST_IR_DISTBASE
#define CLEAVE_DIALECT_DIST_IR_DISTBASE

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"

def Dist_Dialect : Dialect {
  let name = "dist";
  let cppNamespace = "::cleave::dist";
  let summary = "Meshes, shardings, constraints and collectives";
  let description = [{
    The dialect describes how tensors are sharded over a mesh of ranks. It knows nothing
    of models, layers or optimizers.

    Before partitioning (the *global phase*), values have their unsharded
    shapes, and `dist.sharding` attributes and `dist.constrain` say how the
    values are to be sharded. After partitioning (the *local phase*), values
    have the shape of one rank's tile, and every movement of data is an explicit
    collective.

    A dimension of N elements split n ways has tiles of ceil(N / n) elements on
    every rank. Rank i of the group holds the elements from i * tile on. Elements after
    the first N are padding with undefined content (possibly NaN). Every operation that
    reduces over a padded dimension masks the padding.

    Discardable attributes:

    | attribute | on | meaning |
    |---|---|---|
    | `dist.sharding` | arguments and results of functions; operations, as a list with an entry for each result | the sharding, `#dist.sharding<...>` |
    | `dist.global_type` | arguments and results of per-rank functions | the type of the unsharded tensor, of which the argument or result is a tile |
    | `dist.plan` | operations, between the passes `dist-plan-ops` and `dist-partition` | the axes of each factor of the operation, `#dist.plan<...>` |
    | `dist.pad_mask` | `arith.select` | `unit`: the operation replaces padding by the identity of a reduction |
    | `dist.tile_padding` | `nn.pad` with `low` = 0 | `unit`: the pad lengthens a dimension to a whole number of equal tiles, so the added elements are padding with undefined content |
    | `dist.padding` | collectives, and their commands in the `rt` dialect | an i64 above 0: the bytes of the payload that are padding, as the mean over all groups; for reports only |
  }];
  let useDefaultAttributePrinterParser = 1;
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
  let hasRegionResultAttrVerify = 1;
}

class Dist_Attr<string name, string attrMnemonic, list<Trait> traits = []>
    : AttrDef<Dist_Dialect, name, traits> {
  let mnemonic = attrMnemonic;
}

class Dist_Op<string mnemonic, list<Trait> traits = []>
    : Op<Dist_Dialect, mnemonic, traits>;

def Dist_ReduceKind : I32EnumAttr<"ReduceKind", "how partial values combine", [
  I32EnumAttrCase<"Sum", 0, "sum">,
  I32EnumAttrCase<"Max", 1, "max">,
  I32EnumAttrCase<"Min", 2, "min">
]> {
  let cppNamespace = "::cleave::dist";
  let genSpecializedAttr = 0;
}
def Dist_ReduceKindAttr : EnumAttr<Dist_Dialect, Dist_ReduceKind, "reduce_kind">;

def Dist_Purpose : I32EnumAttr<"Purpose", "what a collective is for", [
  I32EnumAttrCase<"Gradient", 0, "gradient">,
  I32EnumAttrCase<"Parameter", 1, "parameter">,
  I32EnumAttrCase<"Activation", 2, "activation">,
  I32EnumAttrCase<"Expert", 3, "expert">,
  I32EnumAttrCase<"Norm", 4, "norm">,
  I32EnumAttrCase<"Loss", 5, "loss">,
  I32EnumAttrCase<"Pipeline", 6, "pipeline">,
  I32EnumAttrCase<"Overflow", 7, "overflow">
]> {
  let cppNamespace = "::cleave::dist";
  let genSpecializedAttr = 0;
}
def Dist_PurposeAttr : EnumAttr<Dist_Dialect, Dist_Purpose, "purpose">;

#endif
