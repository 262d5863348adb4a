// Attention and rotary positions.

#ifndef CLEAVE_DIALECT_NN_IR_NNATTENTIONOPS_TD
#define CLEAVE_DIALECT_NN_IR_NNATTENTIONOPS_TD

include "cleave/Dialect/NN/IR/NNDialect.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def NN_RotaryOp : NN_Op<"rotary", [Pure, AllTypesMatch<["input", "result"]>, AllTypesMatch<["cos", "sin"]>]> {
  let summary = "Rotates pairs of features by angles that depend on the position";
  let description = [{
    The last dimension d of the input is d/2 pairs: (i, i + d/2), or (2i, 2i + 1)
    with `interleaved`. A pair (a, b) becomes (a cos - b sin, b cos + a sin)
    (Su et al., 2021). The input is [b, s, ..., d]; `cos` and `sin` are
    [s, d/2] or [b, s, d/2]. With `inverse`, the angles are negated: this is the
    transpose, and so the derivative.

    ```mlir
    %1 = nn.rotary %x, %cos, %sin : tensor<2x5x3x4xf32>, tensor<5x2xf32>
    ```

    Constraints:
    - (R1) The input has at least three dimensions, the last of even size.
    - (R2) `cos` and `sin` have one type, [s, d/2] or [b, s, d/2].
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
    o = softmax(scale * q k^T + bias, masked) v, and lse = log-sum-exp of the masked
    scores, which is what two partial results need to be merged.

        query      [b, s, n, g, d]      key [b, t, n, d]      value [b, t, n, e]
        result     [b, s, n, g, e]      lse [b, n, g, s]

    With `causal`, key j is seen by query i where k_positions[j] <=
    q_positions[i]; with `window` = w, only where |q_positions[i] - k_positions[j]|
    < w. Positions ([s] or [b, s], and [t] or [b, t]) default to the index in the
    tensor, and must be given where the sequence is split. With segments (of the
    same shapes: the documents that are packed in a row), a query sees the keys of
    its own segment alone. Keys with `key_mask` ([b, t]) false are never seen.
    With `softcap` = c > 0 a scaled score x becomes c tanh(x / c). `bias`
    ([b|1, n|1, g|1, s, t]) is added after that. A query that sees no key gives
    zeros and lse = -inf. A size of 1 in `bias` repeats.

    With `dropout(keys, q_index, k_index) p = x`, weights of the softmax are dropped at
    random: that of query i and key j is kept, and divided by 1 - p, where word
    k_index[j] mod 4 of Philox-4x32-10 with key `dropout_keys[b, n, g]` (low word, high
    word) and counter (k_index[j] / 4, q_index[i], 0, 0), divided by 2^32, is at least
    p; else it is 0. Indices count modulo 2^32 (of queries) and 2^34 (of keys). They are those in the
    whole sequence, whatever the positions are, so that what is dropped depends neither on
    tiles nor on their order. lse does not depend on it.

    ```mlir
    %o, %lse = nn.attention %q, %k, %v scale = 0.5 causal
      : (tensor<2x5x3x1x4xf32>, tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32>)
      -> (tensor<2x5x3x1x4xf32>, tensor<2x3x1x5xf32>)
    ```

    Constraints:
    - (A1) Ranks and sizes are as above.
    - (A2) Positions and segments come in pairs.
    - (A3) `window` and `softcap` are not negative; 0 means none.
    - (A4) There are all operands of dropout ([b, n, g], [s], [t]) and 0 < p < 1, or none
      and p = 0.
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
    Recomputes the probabilities from `lse`, blockwise, as in Dao et al., 2022.
    The cotangent of lse is taken to be zero. `bias` has no cotangent here: a bias
    that needs one is refused by differentiation. Dropout drops what it dropped in
    `nn.attention`.

    ```mlir
    %dq, %dk, %dv = nn.attention_grad %do, %q, %k, %v, %o, %lse scale = 0.5 causal
      : (tensor<2x5x3x1x4xf32>, tensor<2x5x3x1x4xf32>, tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32>, tensor<2x5x3x1x4xf32>, tensor<2x3x1x5xf32>)
      -> (tensor<2x5x3x1x4xf32>, tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32>)
    ```

    Constraints:
    - (A1) Shapes are those of `nn.attention`; results have the types of query, key, value.
    - (A2) Positions and segments come in pairs.
    - (A3) `window` and `softcap` are not negative; 0 means none.
    - (A4) There are all operands of dropout ([b, n, g], [s], [t]) and 0 < p < 1, or none
      and p = 0.
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
