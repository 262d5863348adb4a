// Activations and row normalisations.

#ifndef CLEAVE_DIALECT_NN_IR_NNNORMALIZATIONOPS_TD
#define CLEAVE_DIALECT_NN_IR_NNNORMALIZATIONOPS_TD

include "cleave/Dialect/NN/IR/NNDialect.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def NN_GeluKindAttr : I32EnumAttr<"GeluKind", "formula of GELU", [
    I32EnumAttrCase<"Erf", 0, "erf">, I32EnumAttrCase<"Tanh", 1, "tanh">]> {
  let cppNamespace = "::cleave::nn";
}

def NN_GeluOp : NN_Op<"gelu", [Pure, SameOperandsAndResultType]> {
  let summary = "Gaussian error linear unit";
  let description = [{
    With `erf` the result is x/2 (1 + erf(x/sqrt 2)), with `tanh` it is
    x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) (Hendrycks and Gimpel, 2016).

    ```mlir
    %1 = nn.gelu tanh %0 : tensor<4x6xf32>
    ```
  }];
  let arguments = (ins NN_GeluKindAttr:$kind, NN_FloatTensor:$input);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$kind $input attr-dict `:` type($result)";
}

def NN_GeluGradOp : NN_Op<"gelu_grad", [Pure, SameOperandsAndResultType]> {
  let summary = "Cotangent of the input of `nn.gelu`";
  let description = [{
    ```mlir
    %1 = nn.gelu_grad tanh %cotangent, %x : tensor<4x6xf32>
    ```
  }];
  let arguments = (ins NN_GeluKindAttr:$kind, NN_FloatTensor:$cotangent, NN_FloatTensor:$input);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$kind $cotangent `,` $input attr-dict `:` type($result)";
}

def NN_SigmoidOp : NN_Op<"sigmoid", [Pure, SameOperandsAndResultType]> {
  let summary = "1 / (1 + exp(-x))";
  let description = [{
    ```mlir
    %1 = nn.sigmoid %0 : tensor<4x6xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$input);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($result)";
}

def NN_SoftmaxOp : NN_Op<"softmax", [Pure, SameOperandsAndResultType]> {
  let summary = "exp(x - max) / sum along the last dimension";
  let description = [{
    ```mlir
    %1 = nn.softmax %0 : tensor<4x6xf32>
    ```

    Constraints (the verifier's code cites them by these labels):
    - (S1) The input has at least one dimension.
  }];
  let arguments = (ins NN_FloatTensor:$input);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($result)";
  let hasVerifier = 1;
}

def NN_LayerNormOp : NN_Op<"layer_norm", [Pure]> {
  let summary = "Layer normalisation along the last dimension, with its statistics";
  let description = [{
    y = (x - mean) * rstd * scale + shift with rstd = 1/sqrt(var + epsilon), where var
    is the biased variance over the last dimension (Ba et al., 2016). `mean` and `rstd`
    lack the last dimension: `[b, s, h] -> [b, s]`.

    ```mlir
    %y, %mean, %rstd = nn.layer_norm %x, %scale, %shift epsilon = 1.0e-5
      : (tensor<2x5x6xf32>, tensor<6xf32>, tensor<6xf32>)
      -> (tensor<2x5x6xf32>, tensor<2x5xf32>, tensor<2x5xf32>)
    ```

    Constraints (the verifier's code cites them by these labels):
    - (L1) `scale` and `shift` have one dimension, of the size of the input's last one.
    - (L2) `result` has the input's type; `mean` and `rstd` lack the input's last dimension.
  }];
  let arguments = (ins NN_FloatTensor:$input, NN_FloatTensor:$scale, NN_FloatTensor:$shift, F64Attr:$epsilon);
  let results = (outs NN_FloatTensor:$result, NN_FloatTensor:$mean, NN_FloatTensor:$rstd);
  let assemblyFormat = [{
    $input `,` $scale `,` $shift `epsilon` `=` $epsilon attr-dict
    `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def NN_LayerNormGradOp : NN_Op<"layer_norm_grad", [Pure]> {
  let summary = "Cotangent of the input of `nn.layer_norm`";
  let description = [{
    With g = cotangent * scale and n = (x - mean) * rstd, a row of the result is
    rstd * (g - mean(g) - n * mean(g * n)). The cotangents of scale and shift are
    expressed as plain reductions.

    ```mlir
    %dx = nn.layer_norm_grad %dy, %x, %scale, %mean, %rstd
      : (tensor<2x5x6xf32>, tensor<2x5x6xf32>, tensor<6xf32>, tensor<2x5xf32>, tensor<2x5xf32>)
      -> tensor<2x5x6xf32>
    ```

    Constraints (the verifier's code cites them by these labels):
    - (L1) Shapes are those of `nn.layer_norm`.
  }];
  let arguments = (ins NN_FloatTensor:$cotangent, NN_FloatTensor:$input, NN_FloatTensor:$scale,
                       NN_FloatTensor:$mean, NN_FloatTensor:$rstd);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def NN_RmsNormOp : NN_Op<"rms_norm", [Pure]> {
  let summary = "Root-mean-square normalisation along the last dimension";
  let description = [{
    y = x * rstd * scale with rstd = 1/sqrt(mean(x^2) + epsilon) (Zhang and Sennrich, 2019).

    ```mlir
    %y, %rstd = nn.rms_norm %x, %scale epsilon = 1.0e-6
      : (tensor<2x5x6xf32>, tensor<6xf32>)
      -> (tensor<2x5x6xf32>, tensor<2x5xf32>)
    ```

    Constraints (the verifier's code cites them by these labels):
    - (R1) `scale` has one dimension, of the size of the input's last one.
    - (R2) `result` has the input's type; `rstd` lacks the input's last dimension.
  }];
  let arguments = (ins NN_FloatTensor:$input, NN_FloatTensor:$scale, F64Attr:$epsilon);
  let results = (outs NN_FloatTensor:$result, NN_FloatTensor:$rstd);
  let assemblyFormat = [{
    $input `,` $scale `epsilon` `=` $epsilon attr-dict `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def NN_RmsNormGradOp : NN_Op<"rms_norm_grad", [Pure]> {
  let summary = "Cotangent of the input of `nn.rms_norm`";
  let description = [{
    With g = cotangent * scale and n = x * rstd, a row of the result is
    rstd * (g - n * mean(g * n)).

    ```mlir
    %dx = nn.rms_norm_grad %dy, %x, %scale, %rstd
      : (tensor<2x5x6xf32>, tensor<2x5x6xf32>, tensor<6xf32>, tensor<2x5xf32>)
      -> tensor<2x5x6xf32>
    ```

    Constraints (the verifier's code cites them by these labels):
    - (R1) Shapes are those of `nn.rms_norm`.
  }];
  let arguments = (ins NN_FloatTensor:$cotangent, NN_FloatTensor:$input, NN_FloatTensor:$scale, NN_FloatTensor:$rstd);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

#endif
