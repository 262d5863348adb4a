// Loss, randomness, residuals and optimizers.

#ifndef CLEAVE_DIALECT_NN_IR_NNTRAININGOPS_TD
#define CLEAVE_DIALECT_NN_IR_NNTRAININGOPS_TD

include "cleave/Dialect/NN/IR/NNDialect.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def NN_CrossEntropyOp : NN_Op<"cross_entropy", [Pure]> {
  let summary = "Negative log-likelihood of labels under a softmax, per position";
  let description = [{
    loss = lse - logits[label], where lse is the log-sum-exp over the last
    dimension (the classes). If a label is equal to `ignore_index` or is no
    class, its loss is 0. The operation does not average: other operations sum
    the losses and count the labels.

    ```mlir
    %loss, %lse = nn.cross_entropy %logits, %labels ignore_index = -100
      : (tensor<2x5x7xf32>, tensor<2x5xi64>)
      -> (tensor<2x5xf32>, tensor<2x5xf32>)
    ```

    Constraints (the verifier's code cites them by these labels):
    - (X1) `labels`, `loss` and `lse` lack the last dimension of `logits`.
  }];
  let arguments = (ins NN_FloatTensor:$logits, NN_IndexTensor:$labels, I64Attr:$ignore_index);
  let results = (outs NN_FloatTensor:$loss, NN_FloatTensor:$lse);
  let assemblyFormat = [{
    $logits `,` $labels `ignore_index` `=` $ignore_index attr-dict `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def NN_CrossEntropyGradOp : NN_Op<"cross_entropy_grad", [Pure]> {
  let summary = "Cotangent of the logits of `nn.cross_entropy`";
  let description = [{
    The result is cotangent * (exp(logits - lse) - onehot(label)), and 0 for a label
    that is equal to `ignore_index` or outside the classes.

    ```mlir
    %d = nn.cross_entropy_grad %cotangent, %logits, %labels, %lse ignore_index = -100
      : (tensor<2x5xf32>, tensor<2x5x7xf32>, tensor<2x5xi64>, tensor<2x5xf32>)
      -> tensor<2x5x7xf32>
    ```

    Constraints (the verifier's code cites them by these labels):
    - (X1) Shapes are those of `nn.cross_entropy`.
  }];
  let arguments = (ins NN_FloatTensor:$cotangent, NN_FloatTensor:$logits, NN_IndexTensor:$labels,
                       NN_FloatTensor:$lse, I64Attr:$ignore_index);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $cotangent `,` $logits `,` $labels `,` $lse `ignore_index` `=` $ignore_index attr-dict
    `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def NN_DropoutOp : NN_Op<"dropout", [Pure, AllTypesMatch<["input", "result"]>]> {
  let summary = "Zeroes elements at random and scales the rest by 1/(1-p)";
  let description = [{
    Element (i0, i1, ...) of the *global* tensor is kept if u / 2^32 is at least p,
    where u is the first word of Philox-4x32-10 (Salmon et al., 2011) with key = seed and
    counter = (low word of the element index within the sample, low word of
    sample_ids[i0], low word of the step, op_id). The element index within the sample is
    the row-major index over dimensions 1.. of `global_shape`, at local index + offset.
    So the mask does not depend on the mesh, on microbatches or on tiles. The derivative
    is the same operation applied to the cotangent.

    `offsets` are the tile's global offsets for dimensions 1.., one rank-0 tensor for
    each dimension. There are no offsets if the tensor is not split along these
    dimensions.

    ```mlir
    %1 = nn.dropout %x, %seed, %step, %ids p = 0.1 op_id = 3 global_shape = [2, 5, 6]
      : tensor<2x5x6xf32>, tensor<2xi64>
    ```

    Constraints (the verifier's code cites them by these labels):
    - (D1) 0 <= p < 1; `sample_ids` has one dimension, of the size of the input's first.
    - (D2) `global_shape` has the input's rank, and the product of its sizes after
      dimension 0 is below 2^32.
    - (D3) There are no offsets, or one per dimension after the first.
  }];
  let arguments = (ins NN_FloatTensor:$input, NN_IntScalar:$seed, NN_IntScalar:$step, NN_IndexTensor:$sample_ids,
                       Variadic<NN_IntScalar>:$offsets,
                       F64Attr:$p, I64Attr:$op_id, DenseI64ArrayAttr:$global_shape);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $input `,` $seed `,` $step `,` $sample_ids (`offsets` `(` $offsets^ `)`)?
    `p` `=` $p `op_id` `=` $op_id `global_shape` `=` $global_shape attr-dict
    `:` type($input) `,` type($sample_ids)
  }];
  let hasVerifier = 1;
}

def NN_SaveOp : NN_Op<"save", [Pure, SameOperandsAndResultType]> {
  let summary = "Marks a value of the forward pass that the backward pass reads";
  let description = [{
    The operation is the identity. After partitioning, when the sizes on a rank are
    known, later passes decide at these operations which residuals are saved,
    recomputed, gathered again or moved to other memory.

    ```mlir
    %1 = nn.save %0 : tensor<4x6xf32>
    ```
  }];
  let arguments = (ins NN_Tensor:$input);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($result)";
}

def NN_RematerializeOp : NN_Op<"rematerialize", [Pure, AllTypesMatch<["input", "result"]>]> {
  let summary = "A barrier that keeps a recomputation in the backward pass";
  let description = [{
    The operation is the identity on `input`, and its result is available only once
    `cotangent` is. Without this barrier, common-subexpression elimination silently
    merges the recomputed value with the original one.

    ```mlir
    %1 = nn.rematerialize %0 after %dy : tensor<4x6xf32>, tensor<2xf32>
    ```
  }];
  let arguments = (ins NN_Tensor:$input, NN_Tensor:$cotangent);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$input `after` $cotangent attr-dict `:` type($input) `,` type($cotangent)";
}

def NN_AdamWOp : NN_Op<"adamw", [Pure, AllTypesMatch<["parameter", "m", "v", "gradient", "new_parameter", "new_m", "new_v"]>,
                                AllTypesMatch<["scale", "lr"]>]> {
  let summary = "One AdamW update of one tensor";
  let description = [{
    The update is that of torch.optim.AdamW (Loshchilov and Hutter, 2019), with
    g = gradient * scale and the step t counted from 1, in this order:

        p  = p * (1 - lr * weight_decay)
        m' = beta1 * m + (1 - beta1) * g
        v' = beta2 * v + (1 - beta2) * g^2
        p' = p - lr / (1 - beta1^t) * m' / (sqrt(v') / sqrt(1 - beta2^t) + epsilon)

    ```mlir
    %p1, %m1, %v1 = nn.adamw %p, %m, %v, %g, %scale, %lr, %step beta1 = 0.9 beta2 = 0.999 epsilon = 1.0e-8 weight_decay = 0.01
      : tensor<4x6xf32>, tensor<f32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$parameter, NN_FloatTensor:$m, NN_FloatTensor:$v, NN_FloatTensor:$gradient,
                       NN_FloatScalar:$scale, NN_FloatScalar:$lr, NN_IntScalar:$step,
                       F64Attr:$beta1, F64Attr:$beta2, F64Attr:$epsilon, F64Attr:$weight_decay);
  let results = (outs NN_FloatTensor:$new_parameter, NN_FloatTensor:$new_m, NN_FloatTensor:$new_v);
  let assemblyFormat = [{
    $parameter `,` $m `,` $v `,` $gradient `,` $scale `,` $lr `,` $step
    `beta1` `=` $beta1 `beta2` `=` $beta2 `epsilon` `=` $epsilon `weight_decay` `=` $weight_decay attr-dict
    `:` type($parameter) `,` type($scale)
  }];
}

def NN_SgdOp : NN_Op<"sgd", [Pure, AllTypesMatch<["parameter", "velocity", "gradient", "new_parameter", "new_velocity"]>,
                            AllTypesMatch<["scale", "lr"]>]> {
  let summary = "One update by stochastic gradient descent with momentum";
  let description = [{
    The update is that of torch.optim.SGD: g = gradient * scale + weight_decay * p;
    velocity' = momentum * velocity + g; p' = p - lr * velocity'.

    ```mlir
    %p1, %b1 = nn.sgd %p, %b, %g, %scale, %lr momentum = 0.9 weight_decay = 0.0 : tensor<4x6xf32>, tensor<f32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$parameter, NN_FloatTensor:$velocity, NN_FloatTensor:$gradient,
                       NN_FloatScalar:$scale, NN_FloatScalar:$lr, F64Attr:$momentum, F64Attr:$weight_decay);
  let results = (outs NN_FloatTensor:$new_parameter, NN_FloatTensor:$new_velocity);
  let assemblyFormat = [{
    $parameter `,` $velocity `,` $gradient `,` $scale `,` $lr
    `momentum` `=` $momentum `weight_decay` `=` $weight_decay attr-dict
    `:` type($parameter) `,` type($scale)
  }];
}

#endif
