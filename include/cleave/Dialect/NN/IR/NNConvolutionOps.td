// Convolution and pooling over any number of spatial dimensions.

#ifndef CLEAVE_DIALECT_NN_IR_NNCONVOLUTIONOPS_TD
#define CLEAVE_DIALECT_NN_IR_NNCONVOLUTIONOPS_TD

include "cleave/Dialect/NN/IR/NNDialect.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

// Each attribute has one entry per spatial dimension. The input is padded with `low`
// zeros before its first element and `high` zeros after its last one.
defvar NN_WindowArguments = (ins DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$dilations,
                                 DenseI64ArrayAttr:$low, DenseI64ArrayAttr:$high);

def NN_ConvOp : NN_Op<"conv", [Pure]> {
  let summary = "Convolution (cross-correlation) over the spatial dimensions";
  let description = [{
    y[n, m, o] = sum over c, k of x[n, c, o * stride + k * dilation - low] * w[m, c, k],
    where o and k have one index per spatial dimension, and x is 0 outside the input.

        input  [n, c, spatial...]     filter [m, c / groups, kernel...]
        result [n, m, spatial...]

    The channels c and the features m are each divided into `groups` groups of
    consecutive indices, and the features of group i read only the channels of group i.

    ```mlir
    %y = nn.conv %x, %w strides = [2] dilations = [1] low = [1] high = [1] groups = 1
      : tensor<2x3x8xf32>, tensor<4x3x3xf32> -> tensor<2x4x4xf32>
    ```

    Constraints (the verifier's code cites them by these labels):
    - (C1) input and filter have the same rank, at least 3. strides, dilations, low and
      high have one entry per spatial dimension. strides and dilations are positive, low
      and high are not negative. None of these entries, and no kernel size, is above
      2^24.
    - (C2) `groups` divides the channels c and the features m; the filter has
      c / groups channels.
    - (C3) the size of each spatial dimension of the result is
      `(size + low + high - (kernel - 1) * dilation - 1) / stride + 1`, rounded
      down, and at least 1.
  }];
  let arguments = !con((ins NN_FloatTensor:$input, NN_FloatTensor:$filter), NN_WindowArguments,
                       (ins I64Attr:$groups));
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $input `,` $filter `strides` `=` $strides `dilations` `=` $dilations `low` `=` $low
    `high` `=` $high `groups` `=` $groups attr-dict
    `:` type($input) `,` type($filter) `->` type($result)
  }];
  let hasVerifier = 1;
}

def NN_ConvInputGradOp : NN_Op<"conv_input_grad", [Pure]> {
  let summary = "Cotangent of the input of `nn.conv`";
  let description = [{
    dx[n, c, i] = sum over m, o, k with o * stride + k * dilation - low = i of
    dy[n, m, o] * w[m, c, k].

    ```mlir
    %dx = nn.conv_input_grad %dy, %w strides = [2] dilations = [1] low = [1] high = [1] groups = 1
      : tensor<2x4x4xf32>, tensor<4x3x3xf32> -> tensor<2x3x8xf32>
    ```

    Constraints: those of an `nn.conv` whose input has the type of this result, and whose
    result has the type of the cotangent.
  }];
  let arguments = !con((ins NN_FloatTensor:$cotangent, NN_FloatTensor:$filter),
                       NN_WindowArguments, (ins I64Attr:$groups));
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $cotangent `,` $filter `strides` `=` $strides `dilations` `=` $dilations `low` `=` $low
    `high` `=` $high `groups` `=` $groups attr-dict
    `:` type($cotangent) `,` type($filter) `->` type($result)
  }];
  let hasVerifier = 1;
}

def NN_ConvFilterGradOp : NN_Op<"conv_filter_grad", [Pure]> {
  let summary = "Cotangent of the filter of `nn.conv`";
  let description = [{
    dw[m, c, k] = sum over n, o of dy[n, m, o] * x[n, c, o * stride + k * dilation - low].

    ```mlir
    %dw = nn.conv_filter_grad %dy, %x strides = [2] dilations = [1] low = [1] high = [1] groups = 1
      : tensor<2x4x4xf32>, tensor<2x3x8xf32> -> tensor<4x3x3xf32>
    ```

    Constraints: those of an `nn.conv` whose filter has the type of this result, and whose
    result has the type of the cotangent.
  }];
  let arguments = !con((ins NN_FloatTensor:$cotangent, NN_FloatTensor:$input),
                       NN_WindowArguments, (ins I64Attr:$groups));
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $cotangent `,` $input `strides` `=` $strides `dilations` `=` $dilations `low` `=` $low
    `high` `=` $high `groups` `=` $groups attr-dict
    `:` type($cotangent) `,` type($input) `->` type($result)
  }];
  let hasVerifier = 1;
}

def NN_PoolKindAttr : I32EnumAttr<"PoolKind", "what a pool takes of its window", [
    I32EnumAttrCase<"Max", 0, "max">, I32EnumAttrCase<"Sum", 1, "sum">]> {
  let cppNamespace = "::cleave::nn";
}

def NN_PoolOp : NN_Op<"pool", [Pure]> {
  let summary = "Maximum or sum over windows of the spatial dimensions";
  let description = [{
    y[n, c, o] = max or sum over k below `window` of x[n, c, o * stride + k * dilation -
    low], where positions outside the input are ignored. Average pooling is expressed as
    a sum pool followed by a division by the number of elements in the window.

    ```mlir
    %y = nn.pool max %x window = [2] strides = [2] dilations = [1] low = [0] high = [0]
      : tensor<2x3x8xf32> -> tensor<2x3x4xf32>
    ```

    Constraints (the verifier's code cites them by these labels):
    - (P1) the input has rank 3 or more; window, strides, dilations, low and high have
      one entry per spatial dimension; low and high are not negative, window, strides
      and dilations are positive, and no entry is above 2^24.
    - (P2) sizes of the result are those of `nn.conv` with `window` as the kernel.
    - (P3) each window holds at least one element of the input, along every spatial
      dimension: low and high are at most (window - 1) * dilation, and no dilated
      window has all elements of the input in its gaps.
  }];
  let arguments = !con((ins NN_PoolKindAttr:$kind, NN_FloatTensor:$input,
                            DenseI64ArrayAttr:$window), NN_WindowArguments);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $kind $input `window` `=` $window `strides` `=` $strides `dilations` `=` $dilations
    `low` `=` $low `high` `=` $high attr-dict `:` type($input) `->` type($result)
  }];
  let hasVerifier = 1;
}

def NN_PoolGradOp : NN_Op<"pool_grad", [Pure]> {
  let summary = "Cotangent of the input of `nn.pool`";
  let description = [{
    For a sum pool, every element of a window receives the cotangent of the window. For
    a maximum pool, only the largest element of the window receives the cotangent, the
    first in row-major order if several elements are equal.

    ```mlir
    %dx = nn.pool_grad max %dy, %x window = [2] strides = [2] dilations = [1] low = [0] high = [0]
      : tensor<2x3x4xf32>, tensor<2x3x8xf32> -> tensor<2x3x8xf32>
    ```

    Constraints: those of `nn.pool`; the result has the input's type.
  }];
  let arguments = !con((ins NN_PoolKindAttr:$kind, NN_FloatTensor:$cotangent,
                            NN_FloatTensor:$input, DenseI64ArrayAttr:$window),
                       NN_WindowArguments);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $kind $cotangent `,` $input `window` `=` $window `strides` `=` $strides
    `dilations` `=` $dilations `low` `=` $low `high` `=` $high attr-dict
    `:` type($cotangent) `,` type($input) `->` type($result)
  }];
  let hasVerifier = 1;
}

def NN_TopKOp : NN_Op<"top_k", [Pure]> {
  let summary = "The k largest elements along the last dimension, and their indices";
  let description = [{
    The values are in descending order. Among equal elements, the one with the lower
    index comes first.

    ```mlir
    %values, %indices = nn.top_k %x k = 2 : tensor<4x6xf32> -> tensor<4x2xf32>, tensor<4x2xi64>
    ```

    Constraints (the verifier's code cites them by these labels):
    - (T1) 1 <= k <= the size of the last dimension.
    - (T2) the results have the input's shape, with k as the last dimension; the
      values have the input's element type.
  }];
  let arguments = (ins NN_FloatTensor:$input, I64Attr:$k);
  let results = (outs NN_FloatTensor:$values, NN_IndexTensor:$indices);
  let assemblyFormat = [{
    $input `k` `=` $k attr-dict `:` type($input) `->` type($values) `,` type($indices)
  }];
  let hasVerifier = 1;
}

#endif
