// Operations that depend on the coordinates of a rank on the mesh.

#ifndef CLEAVE_DIALECT_DIST_IR_DISTRANKOPS
#define CLEAVE_DIALECT_DIST_IR_DISTRANKOPS

include "cleave/Dialect/Dist/IR/DistAttrs.td"
include "cleave/Dialect/Dist/IR/DistInterfaces.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

class Dist_RankOp<string mnemonic, list<Trait> traits = []>
    : Dist_Op<mnemonic, !listconcat(
        [Pure, DeclareOpInterfaceMethods<SymbolUserOpInterface>], traits)>;

def Dist_SliceOp : Dist_RankOp<"slice"> {
  let summary = "Takes the rank's tile of a dimension that each rank holds completely";
  let description = [{
    The operation does not communicate. The tile of a dimension of N elements split n
    ways has ceil(N / n) elements. If n does not divide N, the tiles of the last ranks
    end in padding with undefined content.

    ```mlir
    %1 = dist.slice %0 dim 0 over @m {"x"} : tensor<10x6xf32> -> tensor<3x6xf32>
    ```

    Constraints (the verifier's code cites them by these labels):
    (C1) of `dist.all_reduce`, and
    - (SL1) `dim` is a dimension of the operand.
    - (SL2) the result has the shape of the operand, except that dimension `dim` has the
      size of a tile.
  }];
  let arguments = (ins AnyRankedTensor:$input, I64Attr:$dim,
                       FlatSymbolRefAttr:$mesh, Dist_AxisListAttr:$axes);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = [{
    $input `dim` custom<Dim>($dim) `over` $mesh custom<AxisList>($axes)
    attr-dict `:` type($input) `->` type($result)
  }];
}

def Dist_KeepFirstOp : Dist_RankOp<"keep_first", [SameOperandsAndResultType]> {
  let summary = "Turns a replicated value into partial sums of the value";
  let description = [{
    The first rank of each group keeps the value and the other ranks get zeros, so that
    a later sum over the axes counts the value once. The operation does not communicate.

    ```mlir
    %1 = dist.keep_first %0 over @m {"x"} : tensor<f32>
    ```

    Constraints: (C1) of `dist.all_reduce`.
  }];
  let arguments = (ins AnyRankedTensor:$input, FlatSymbolRefAttr:$mesh,
                       Dist_AxisListAttr:$axes);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = [{
    $input `over` $mesh custom<AxisList>($axes) attr-dict `:` type($input)
  }];
}

def Dist_AxisIndexOp : Dist_RankOp<"axis_index"> {
  let summary = "The rank's index in its group";
  let description = [{
    The result is the rank's row-major index over `axes`, in the order in which they are
    listed.

    ```mlir
    %0 = dist.axis_index over @m {"x", "y"} : tensor<i64>
    ```

    Constraints: (C1) of `dist.all_reduce`.
  }];
  let arguments = (ins FlatSymbolRefAttr:$mesh, Dist_AxisListAttr:$axes);
  let results = (outs 0DTensorOf<[I64]>:$result);
  let assemblyFormat = "`over` $mesh custom<AxisList>($axes) attr-dict `:` type($result)";
}

def Dist_TileOffsetOp : Dist_RankOp<"tile_offset"> {
  let summary = "The offset of the rank's tile in the whole dimension";
  let description = [{
    The result is the rank's index in its group times the size of a tile.

    ```mlir
    %0 = dist.tile_offset tile 3 over @m {"x"} : tensor<i64>
    ```

    Constraints (the verifier's code cites them by these labels):
    (C1) of `dist.all_reduce`, and
    - (TO1) `tile` is positive.
  }];
  let arguments = (ins I64Attr:$tile, FlatSymbolRefAttr:$mesh, Dist_AxisListAttr:$axes);
  let results = (outs 0DTensorOf<[I64]>:$result);
  let assemblyFormat = [{
    `tile` custom<Dim>($tile) `over` $mesh custom<AxisList>($axes) attr-dict `:` type($result)
  }];
}

#endif
