// Shape operations, which move or repeat elements and compute nothing.

#ifndef CLEAVE_DIALECT_NN_IR_NNSHAPEOPS_TD
#define CLEAVE_DIALECT_NN_IR_NNSHAPEOPS_TD

include "cleave/Dialect/NN/IR/NNDialect.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def NN_BroadcastOp : NN_Op<"broadcast", [Pure, AllElementTypesMatch<["input", "result"]>]> {
  let summary = "Repeats a tensor along new dimensions";
  let description = [{
    `dims[i]` is the result dimension that input dimension `i` becomes; along all other
    result dimensions the input is repeated. Kernels that need the result read the
    input directly, so the result is not stored.

    ```mlir
    %1 = nn.broadcast %bias dims = [1] : tensor<8xf32> -> tensor<4x8xf32>
    ```

    Constraints (the verifier's code cites them by these labels):
    - (B1) `dims` has one entry for each input dimension, and the entries are
      strictly increasing.
    - (B2) Each entry of `dims` is the index of a result dimension, and this
      dimension has the size of the corresponding input dimension.
  }];
  let arguments = (ins NN_Tensor:$input, DenseI64ArrayAttr:$dims);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$input `dims` `=` $dims attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def NN_ReshapeOp : NN_Op<"reshape", [Pure, AllElementTypesMatch<["input", "result"]>]> {
  let summary = "Reinterprets the row-major order of elements under another shape";
  let description = [{
    ```mlir
    %1 = nn.reshape %0 : tensor<4x6xf32> -> tensor<4x2x3xf32>
    ```

    Constraints (the verifier's code cites them by these labels):
    - (R1) Input and result have the same number of elements.
  }];
  let arguments = (ins NN_Tensor:$input);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def NN_TransposeOp : NN_Op<"transpose", [Pure, InferTypeOpAdaptor]> {
  let summary = "Permutes dimensions";
  let description = [{
    Result dimension `i` is input dimension `permutation[i]`.

    ```mlir
    %1 = nn.transpose %0 [1, 0] : tensor<4x6xf32> -> tensor<6x4xf32>
    ```

    Constraints (the verifier's code cites them by these labels):
    - (T1) `permutation` is a permutation of the input's dimensions.
  }];
  let arguments = (ins NN_Tensor:$input, DenseI64ArrayAttr:$permutation);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$input $permutation attr-dict `:` type($input) `->` type($result)";
  let hasFolder = 1;
}

def NN_SliceOp : NN_Op<"slice", [Pure, InferTypeOpAdaptor]> {
  let summary = "Takes a strided range of elements out of a tensor";
  let description = [{
    ```mlir
    %1 = nn.slice %0 [0, 2] [4, 3] [1, 1] : tensor<4x6xf32> -> tensor<4x3xf32>
    ```
    The three lists of the assembly format are the offsets, sizes and strides of
    the range.

    Constraints (the verifier's code cites them by these labels):
    - (S1) There is one offset, size and stride per dimension; strides are not 0.
    - (S2) The range is inside the input. With a negative stride, the elements
      of a dimension are taken in descending order from its offset.
  }];
  let arguments = (ins NN_Tensor:$input, DenseI64ArrayAttr:$offsets,
                       DenseI64ArrayAttr:$sizes, DenseI64ArrayAttr:$strides);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$input $offsets $sizes $strides attr-dict `:` type($input) `->` type($result)";
  let hasFolder = 1;
}

def NN_ConcatOp : NN_Op<"concat", [Pure, InferTypeOpAdaptor]> {
  let summary = "Concatenates tensors along a dimension";
  let description = [{
    ```mlir
    %2 = nn.concat %0, %1 dim = 1 : tensor<4x2xf32>, tensor<4x3xf32> -> tensor<4x5xf32>
    ```

    Constraints (the verifier's code cites them by these labels):
    - (C1) There is at least one input, and `dim` is a dimension of the inputs.
    - (C2) The inputs agree in element type, rank and all other dimensions.
  }];
  let arguments = (ins Variadic<NN_Tensor>:$inputs, ConfinedAttr<I64Attr, [IntNonNegative]>:$dim);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$inputs `dim` `=` $dim attr-dict `:` type($inputs) `->` type($result)";
  let hasFolder = 1;
}

def NN_PadOp : NN_Op<"pad", [Pure, AllElementTypesMatch<["input", "result"]>]> {
  let summary = "Pads a tensor with a constant";
  let description = [{
    ```mlir
    %1 = nn.pad %0 low = [0, 0] high = [0, 1] value = 0.0 : tensor<4x5xf32> -> tensor<4x6xf32>
    ```
    An integer tensor is padded with the integer nearest to `value`.

    Constraints (the verifier's code cites them by these labels):
    - (P1) `low` and `high` have one entry per dimension, none negative.
    - (P2) The result has the input's sizes plus `low` plus `high`.
  }];
  let arguments = (ins NN_Tensor:$input, DenseI64ArrayAttr:$low, DenseI64ArrayAttr:$high, F64Attr:$value);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = [{
    $input `low` `=` $low `high` `=` $high `value` `=` $value attr-dict
    `:` type($input) `->` type($result)
  }];
  let hasVerifier = 1;
}

def NN_IotaOp : NN_Op<"iota", [Pure]> {
  let summary = "The index of each element along a dimension";
  let description = [{
    The value of every element is the element's index along `dim`. A kernel that needs
    these values computes them itself, so index grids and masks are never stored.

    ```mlir
    %0 = nn.iota dim = 1 : tensor<4x6xi64>
    ```

    Constraints (the verifier's code cites them by these labels):
    - (I1) `dim` is a dimension of the result.
  }];
  let arguments = (ins ConfinedAttr<I64Attr, [IntNonNegative]>:$dim);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "`dim` `=` $dim attr-dict `:` type($result)";
  let hasVerifier = 1;
}

#endif
