//===- DistAttrs.td - meshes and shardings -----------------------*- tablegen -*-===//

#ifndef CLEAVE_DIALECT_DIST_IR_DISTATTRS
#define CLEAVE_DIALECT_DIST_IR_DISTATTRS

include "cleave/Dialect/Dist/IR/DistBase.td"

def Dist_MeshAxisAttr : Dist_Attr<"MeshAxis", "mesh_axis"> {
  let summary = "A named axis of a mesh and its size";
  let parameters = (ins "::mlir::StringAttr":$name, "int64_t":$size);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Dist_MeshAttr : Dist_Attr<"Mesh", "mesh"> {
  let summary = "The named axes of a mesh, the axis with the slowest links first";
  let description = [{
    `#dist.mesh<["x"=4, "y"=2]>` is a mesh of 8 ranks. The number of a rank is the
    row-major index over the axes.
  }];
  let parameters = (ins ArrayRefParameter<"MeshAxisAttr">:$axes);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// Returns the number of ranks.
    int64_t getNumRanks() const;
    /// Returns the size of the axis, or 0 if the mesh has no axis of that name.
    int64_t getAxisSize(::llvm::StringRef name) const;
  }];
}

def Dist_AxisRefAttr : Dist_Attr<"AxisRef", "axis"> {
  let summary = "A mesh axis, or a sub-axis of it";
  let description = [{
    `"x"` is the whole axis. `"x":(2)4` is, as in Shardy, the sub-axis of x of size 4
    with pre-size 2, the product of the sizes of the sub-axes of x that are major to it.
    In C++, the size of a whole axis is 0.
  }];
  let parameters = (ins "::mlir::StringAttr":$name, "int64_t":$pre, "int64_t":$size);
  let builders = [
    AttrBuilder<(ins "::llvm::StringRef":$name), [{
      return $_get($_ctxt, ::mlir::StringAttr::get($_ctxt, name), 1, 0);
    }]>
  ];
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    bool isWhole() const { return getSize() == 0; }
  }];
}

def Dist_AxisListAttr : Dist_Attr<"AxisList", "axes"> {
  let summary = "An ordered list of axes, the major one first";
  let description = "The attribute is written `#dist.axes<{\"x\", \"y\":(1)2}>`. In operations, only the braces and their content are written.";
  let parameters = (ins ArrayRefParameter<"AxisRefAttr">:$axes);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Dist_DimShardingAttr : Dist_Attr<"DimSharding", "dim"> {
  let summary = "The axes that split one dimension";
  let description = [{
    A dimension with `{"x", "y"}` is split by x, then by y. A trailing `?` makes the
    dimension open: propagation may append axes.
  }];
  let parameters = (ins ArrayRefParameter<"AxisRefAttr">:$axes, "bool":$isOpen);
  let hasCustomAssemblyFormat = 1;
}

def Dist_ShardingAttr : Dist_Attr<"Sharding", "sharding"> {
  let summary = "How one tensor is placed on a mesh";
  let description = [{
    ```mlir
    #dist.sharding<@m, [{"x", "y":(1)2, ?}, {} ], partial = sum{"z"},
                   replicated = {"w"}, priority = 1>
    ```
    A sharding has a list with one entry for each dimension of the tensor: the mesh axes
    that split the dimension. Three optional parts follow: `partial`,
    the axes over which the ranks hold partial sums (or candidates of a maximum or
    minimum) of the value; `replicated`, the axes over which the value must stay
    replicated; `priority`, the priority of propagation (0 first). The value is also
    replicated over every axis that the sharding does not name.

    Constraints (the verifier's code cites them by these labels):
    - (S1) no axis is used twice, nor are overlapping parts of one axis.
    - (S2) there is one entry for each dimension of the tensor.
    - (S3) every axis is an axis of the mesh.
    - (S4) `pre` times `size` of a sub-axis divides the size of its axis.
  }];
  let parameters = (ins
    "::mlir::FlatSymbolRefAttr":$mesh,
    ArrayRefParameter<"DimShardingAttr">:$dims,
    "ReduceKind":$partialKind,
    ArrayRefParameter<"AxisRefAttr">:$partial,
    ArrayRefParameter<"AxisRefAttr">:$replicated,
    "int64_t":$priority);
  let builders = [
    AttrBuilder<(ins "::mlir::FlatSymbolRefAttr":$mesh,
                     "::llvm::ArrayRef<DimShardingAttr>":$dims), [{
      return $_get($_ctxt, mesh, dims, ReduceKind::Sum, ::llvm::ArrayRef<AxisRefAttr>(),
                  ::llvm::ArrayRef<AxisRefAttr>(), int64_t(0));
    }]>
  ];
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    static constexpr ::llvm::StringLiteral kAttrName = "dist.sharding";
    int64_t getRank() const { return getDims().size(); }
  }];
}

def Dist_PlanAttr : Dist_Attr<"Plan", "plan"> {
  let summary = "How the ranks share the work of one operation";
  let description = [{
    The pass `dist-plan-ops` sets this attribute on operations, and
    `dist-partition` reads it. `factors` has, for each factor of the operation's
    sharding rule, the axes that split the factor. `carry` has the axes over
    which the operation passes partial values from its operands to its results.
    An example for an operation with two factors is

    ```
    dist.plan = #dist.plan<carry = <{"t"}>,
                           factors = [#dist.axes<{"d"}>, #dist.axes<{}>]>
    ```
  }];
  let parameters = (ins "AxisListAttr":$carry, "::mlir::ArrayAttr":$factors);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

#endif
