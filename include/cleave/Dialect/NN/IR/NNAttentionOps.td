// Attention and rotary positions.

#ifndef CLEAVE_DIALECT_NN_IR_NNATTENTIONOPS_TD
#define CLEAVE_DIALECT_NN_IR_NNATTENTIONOPS_TD

include "cleave/Dialect/NN/IR/NNDialect.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def NN_RotaryOp : NN_Op<"rotary", [Pure, AllTypesMatch<["input", "result"]>, AllTypesMatch<["cos", "sin"]>]> {
  let summary = "Rotates pairs of features by angles that depend on the position";
  let description = [{
    The last dimension of the input, of size d, holds d/2 pairs of features:
    (i, i + d/2), or (2i, 2i + 1) with `interleaved`. A pair (a, b) becomes
    (a cos - b sin, b cos + a sin) (Su et al., 2021). The input is [b, s, ..., d],
    and `cos` and `sin` are [s, d/2] or [b, s, d/2]. With `inverse`, the angles are
    negated, which gives the transpose of the rotation and thus its derivative.

    ```mlir
    %1 = nn.rotary %x, %cos, %sin : tensor<2x5x3x4xf32>, tensor<5x2xf32>
    ```

    Constraints (the verifier's code cites them by these labels):
    - (R1) The input has at least three dimensions, and the last dimension has
      an even size.
    - (R2) `cos` and `sin` have the same type, [s, d/2] or [b, s, d/2].
  }];
  let arguments = (ins NN_FloatTensor:$input, NN_FloatTensor:$cos, NN_FloatTensor:$sin,
                       UnitAttr:$interleaved, UnitAttr:$inverse);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $input `,` $cos `,` $sin (`interleaved` $interleaved^)? (`inverse` $inverse^)? attr-dict
    `:` type($input) `,` type($cos)
  }];
  let hasVerifier = 1;
}

def NN_AttentionOp : NN_Op<"attention", [Pure, AttrSizedOperandSegments]> {
  let summary = "Scaled dot-product attention with grouped key and value heads";
  let description = [{
    For each sample b, KV head n and query head (n, g):
    o = softmax(scale * q k^T + bias, masked) v, and lse is the log-sum-exp of the
    masked scores, with which two partial results can be merged.

        query      [b, s, n, g, d]      key [b, t, n, d]      value [b, t, n, e]
        result     [b, s, n, g, e]      lse [b, n, g, s]

    With `causal`, query i sees key j only if k_positions[j] <= q_positions[i]. With
    `window` = w, query i sees key j only if |q_positions[i] - k_positions[j]| < w.
    Positions ([s] or [b, s] for queries, [t] or [b, t] for keys) default to the index
    in the tensor, and must be given if the sequence is sharded. Segments have the
    shapes of positions and number the documents that are packed in a sequence; a
    query sees only keys of its own segment. No query sees a key for which `key_mask`
    ([b, t]) is false. With `softcap` = c > 0 a scaled score x becomes c tanh(x / c).
    `bias` ([b|1, n|1, g|1, s, t]) is added after the softcap, and its dimensions of
    size 1 are broadcast. A query that sees no key gives zeros and lse = -inf.

    With `dropout(keys, q_index, k_index) p = x`, weights of the softmax are dropped at
    random. The weight of query i and key j is kept, and divided by 1 - p, if
    u / 2^32 is at least p, where u is word k_index[j] mod 4 of Philox-4x32-10 with key
    `dropout_keys[b, n, g]` (low word, high word) and counter
    (k_index[j] / 4, q_index[i], 0, 0); otherwise the weight is 0. `q_index` counts
    modulo 2^32, `k_index` modulo 2^34. Both are indices in the whole sequence and do
    not depend on the positions, so that the dropped weights depend neither on tiles
    nor on their order. lse does not depend on dropout.

    ```mlir
    %o, %lse = nn.attention %q, %k, %v scale = 0.5 causal
      : (tensor<2x5x3x1x4xf32>, tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32>)
      -> (tensor<2x5x3x1x4xf32>, tensor<2x3x1x5xf32>)
    ```

    Constraints (the verifier's code cites them by these labels):
    - (A1) Ranks and sizes of operands and results are those listed above.
    - (A2) Positions are given for both queries and keys or for neither, and so are
      segments.
    - (A3) `window` and `softcap` are not negative; 0 means none.
    - (A4) Either all operands of dropout ([b, n, g], [s], [t]) are given and
      0 < p < 1, or no operand of dropout is given and p = 0.
  }];
  let arguments = (ins NN_FloatTensor:$query, NN_FloatTensor:$key, NN_FloatTensor:$value,
                       Optional<NN_IndexTensor>:$q_positions, Optional<NN_IndexTensor>:$k_positions,
                       Optional<NN_IndexTensor>:$q_segments, Optional<NN_IndexTensor>:$k_segments,
                       Optional<NN_BoolTensor>:$key_mask, Optional<NN_FloatTensor>:$bias,
                       Optional<NN_KeyTensor>:$dropout_keys, Optional<NN_KeyTensor>:$q_index, Optional<NN_KeyTensor>:$k_index,
                       F64Attr:$scale, UnitAttr:$causal,
                       DefaultValuedAttr<I64Attr, "0">:$window, DefaultValuedAttr<F64Attr, "0.0">:$softcap,
                       DefaultValuedAttr<F64Attr, "0.0">:$dropout);
  let results = (outs NN_FloatTensor:$result, NN_FloatTensor:$lse);
  let assemblyFormat = [{
    $query `,` $key `,` $value
    (`positions` `(` $q_positions^ `,` $k_positions `)`)? (`segments` `(` $q_segments^ `,` $k_segments `)`)?
    (`key_mask` `(` $key_mask^ `)`)? (`bias` `(` $bias^ `)`)?
    (`dropout` `(` $dropout_keys^ `,` $q_index `,` $k_index `)` `p` `=` $dropout)?
    `scale` `=` $scale (`causal` $causal^)? (`window` `=` $window^)? (`softcap` `=` $softcap^)? attr-dict `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def NN_AttentionGradOp : NN_Op<"attention_grad", [Pure, AttrSizedOperandSegments]> {
  let summary = "Cotangents of query, key and value of `nn.attention`";
  let description = [{
    The operation recomputes the probabilities from `lse`, block by block, as
    flash attention does (Dao et al., 2022). The cotangent of lse is assumed to
    be zero. The operation gives no cotangent of `bias`, so differentiation
    reports an error for a bias that needs a cotangent. Dropout drops the same
    weights as in `nn.attention`.

    ```mlir
    %dq, %dk, %dv = nn.attention_grad %do, %q, %k, %v, %o, %lse scale = 0.5 causal
      : (tensor<2x5x3x1x4xf32>, tensor<2x5x3x1x4xf32>, tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32>, tensor<2x5x3x1x4xf32>, tensor<2x3x1x5xf32>)
      -> (tensor<2x5x3x1x4xf32>, tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32>)
    ```

    Constraints (the verifier's code cites them by these labels):
    - (A1) Shapes are those of `nn.attention`; results have the types of query, key, value.
    - (A2) Positions are given for both queries and keys or for neither, and so are
      segments.
    - (A3) `window` and `softcap` are not negative; 0 means none.
    - (A4) Either all operands of dropout ([b, n, g], [s], [t]) are given and
      0 < p < 1, or no operand of dropout is given and p = 0.
  }];
  let arguments = (ins NN_FloatTensor:$cotangent, NN_FloatTensor:$query, NN_FloatTensor:$key, NN_FloatTensor:$value,
                       NN_FloatTensor:$output, NN_FloatTensor:$lse,
                       Optional<NN_IndexTensor>:$q_positions, Optional<NN_IndexTensor>:$k_positions,
                       Optional<NN_IndexTensor>:$q_segments, Optional<NN_IndexTensor>:$k_segments,
                       Optional<NN_BoolTensor>:$key_mask, Optional<NN_FloatTensor>:$bias,
                       Optional<NN_KeyTensor>:$dropout_keys, Optional<NN_KeyTensor>:$q_index, Optional<NN_KeyTensor>:$k_index,
                       F64Attr:$scale, UnitAttr:$causal,
                       DefaultValuedAttr<I64Attr, "0">:$window, DefaultValuedAttr<F64Attr, "0.0">:$softcap,
                       DefaultValuedAttr<F64Attr, "0.0">:$dropout);
  let results = (outs NN_FloatTensor:$d_query, NN_FloatTensor:$d_key, NN_FloatTensor:$d_value);
  let assemblyFormat = [{
    $cotangent `,` $query `,` $key `,` $value `,` $output `,` $lse
    (`positions` `(` $q_positions^ `,` $k_positions `)`)? (`segments` `(` $q_segments^ `,` $k_segments `)`)?
    (`key_mask` `(` $key_mask^ `)`)? (`bias` `(` $bias^ `)`)?
    (`dropout` `(` $dropout_keys^ `,` $q_index `,` $k_index `)` `p` `=` $dropout)?
    `scale` `=` $scale (`causal` $causal^)? (`window` `=` $window^)? (`softcap` `=` $softcap^)? attr-dict `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

#endif
