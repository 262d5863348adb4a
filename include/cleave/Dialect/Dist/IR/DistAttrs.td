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
  let summary = "Named axes, slowest link first";
  let description = [{
    `#dist.mesh<["x"=4, "y"=2]>`. A rank is the row-major index over the axes.
  }];
  let parameters = (ins ArrayRefParameter<"MeshAxisAttr">:$axes);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// The number of ranks.
    int64_t getNumRanks() const;
    /// The size of the axis, or 0 when there is none of that name.
    int64_t getAxisSize(::llvm::StringRef name) const;
  }];
}

def Dist_AxisRefAttr : Dist_Attr<"AxisRef", "axis"> {
  let summary = "A whole axis, or a part of one";
  let description = [{
    `"x"` is the whole axis. `"x":(2)4` is the sub-axis of x with 2 blocks
    before it (major to it) and size 4. A size of 0 stands for the whole axis.
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
  let description = "`#dist.axes<{\"x\", \"y\":(1)2}>`; operations print the braces alone.";
  let parameters = (ins ArrayRefParameter<"AxisRefAttr">:$axes);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Dist_DimShardingAttr : Dist_Attr<"DimSharding", "dim"> {
  let summary = "The axes that split one dimension";
  let description = [{
    `{"x", "y"}` is split by x, then by y. A trailing `?` makes the dimension
    open: propagation may append axes.
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
    One entry for each dimension; then, each optional: the axes over which the
    ranks hold partial sums (or candidates of a maximum or minimum) of the value; the
    axes over which it must stay whole; the priority (0 first) of propagation.
    An axis not named anywhere is one over which the value is replicated.

    Constraints:
    - (S1) no axis, or overlapping parts of one axis, is used twice.
    - (S2) one entry for each dimension of the tensor.
    - (S3) every axis is one of the mesh.
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
    `dist.plan = #dist.plan<carry = <{"t"}>, factors = [#dist.axes<{"d"}>,
    #dist.axes<{}>]>` on an operation, from `dist-plan-ops` to `dist-partition`:
    for each factor of its sharding rule the axes that split it, and the axes
    over which it passes partial values on.
  }];
  let parameters = (ins "AxisListAttr":$carry, "::mlir::ArrayAttr":$factors);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

#endif
