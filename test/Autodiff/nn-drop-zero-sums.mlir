// RUN: cleave-opt %s -split-input-file --nn-drop-zero-sums --canonicalize | FileCheck %s

// All positions of keys: zero. Those of values are not.
// CHECK-LABEL: func @bias
// CHECK-DAG:     %[[ZERO:.+]] = arith.constant dense<0.000000e+00> : tensor<12xf32>
// CHECK-DAG:     nn.attention_grad
// CHECK:         %[[VALUES:.+]] = nn.reduce sum
// CHECK:         return %[[ZERO]], %[[VALUES]]
func.func @bias(%do: tensor<2x5x3x1x4xf32>, %q: tensor<2x5x3x1x4xf32>, %k: tensor<2x5x3x4xf32>,
                %v: tensor<2x5x3x4xf32>, %o: tensor<2x5x3x1x4xf32>, %lse: tensor<2x3x1x5xf32>)
    -> (tensor<12xf32>, tensor<12xf32>) {
  %dq, %dk, %dv = nn.attention_grad %do, %q, %k, %v, %o, %lse scale = 0.5 causal
    : (tensor<2x5x3x1x4xf32>, tensor<2x5x3x1x4xf32>, tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32>, tensor<2x5x3x1x4xf32>, tensor<2x3x1x5xf32>)
    -> (tensor<2x5x3x1x4xf32>, tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32>)
  %0 = nn.reshape %dk : tensor<2x5x3x4xf32> -> tensor<10x12xf32>
  %1 = nn.reduce sum %0 dims = [0] : tensor<10x12xf32> -> tensor<12xf32>
  %2 = nn.reshape %dv : tensor<2x5x3x4xf32> -> tensor<10x12xf32>
  %3 = nn.reduce sum %2 dims = [0] : tensor<10x12xf32> -> tensor<12xf32>
  return %1, %3 : tensor<12xf32>, tensor<12xf32>
}

// -----

// Of a fused bias the part of keys: its addend is left out of the sum. The sum
// over samples alone, and one by heads that are not placed but mixed, stay.
// CHECK-LABEL: func @fused
// CHECK:         %[[GRAD:.+]], %[[KEYS:.+]], %[[V:.+]] = nn.attention_grad
// CHECK:         %[[PADDED:.+]] = nn.pad %[[KEYS]]
// CHECK:         nn.pad %[[V]]
// CHECK:         %[[BOTH:.+]] = arith.addf
// CHECK:         %[[BIAS:.+]] = nn.reduce sum %{{.+}} dims = [0, 1]
// CHECK:         %[[OTHER:.+]] = nn.reduce sum %[[BOTH]] dims = [0]
// CHECK:         return %[[BIAS]], %[[OTHER]]
func.func @fused(%do: tensor<2x5x3x1x4xf32>, %q: tensor<2x5x3x1x4xf32>, %k: tensor<2x5x3x4xf32>,
                 %v: tensor<2x5x3x4xf32>, %o: tensor<2x5x3x1x4xf32>, %lse: tensor<2x3x1x5xf32>)
    -> (tensor<6x4xf32>, tensor<5x6x4xf32>) {
  %dq, %dk, %dv = nn.attention_grad %do, %q, %k, %v, %o, %lse scale = 0.5
    : (tensor<2x5x3x1x4xf32>, tensor<2x5x3x1x4xf32>, tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32>, tensor<2x5x3x1x4xf32>, tensor<2x3x1x5xf32>)
    -> (tensor<2x5x3x1x4xf32>, tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32>)
  %0 = nn.pad %dk low = [0, 0, 0, 0] high = [0, 0, 3, 0] value = 0.0 : tensor<2x5x3x4xf32> -> tensor<2x5x6x4xf32>
  %1 = nn.pad %dv low = [0, 0, 3, 0] high = [0, 0, 0, 0] value = 0.0 : tensor<2x5x3x4xf32> -> tensor<2x5x6x4xf32>
  %2 = arith.addf %0, %1 : tensor<2x5x6x4xf32>
  %3 = nn.reduce sum %2 dims = [0, 1] : tensor<2x5x6x4xf32> -> tensor<6x4xf32>
  %4 = nn.reduce sum %2 dims = [0] : tensor<2x5x6x4xf32> -> tensor<5x6x4xf32>
  return %3, %4 : tensor<6x4xf32>, tensor<5x6x4xf32>
}

// -----

// A softcap sees a constant in the scores.
// CHECK-LABEL: func @capped
// CHECK:         %[[SUM:.+]] = nn.reduce sum
// CHECK:         return %[[SUM]]
func.func @capped(%do: tensor<2x5x3x1x4xf32>, %q: tensor<2x5x3x1x4xf32>, %k: tensor<2x5x3x4xf32>,
                  %v: tensor<2x5x3x4xf32>, %o: tensor<2x5x3x1x4xf32>, %lse: tensor<2x3x1x5xf32>)
    -> tensor<3x4xf32> {
  %dq, %dk, %dv = nn.attention_grad %do, %q, %k, %v, %o, %lse scale = 0.5 softcap = 30.0
    : (tensor<2x5x3x1x4xf32>, tensor<2x5x3x1x4xf32>, tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32>, tensor<2x5x3x1x4xf32>, tensor<2x3x1x5xf32>)
    -> (tensor<2x5x3x1x4xf32>, tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32>)
  %0 = nn.reduce sum %dk dims = [0, 1] : tensor<2x5x3x4xf32> -> tensor<3x4xf32>
  return %0 : tensor<3x4xf32>
}

// -----

// A cache's part of the keys, as a slice of their cotangents, is no sum over all.
// CHECK-LABEL: func @cache
// CHECK:         nn.slice
// CHECK:         %[[SUM:.+]] = nn.reduce sum
// CHECK:         return %[[SUM]]
func.func @cache(%do: tensor<2x5x3x1x4xf32>, %q: tensor<2x5x3x1x4xf32>, %k: tensor<2x7x3x4xf32>,
                 %v: tensor<2x7x3x4xf32>, %o: tensor<2x5x3x1x4xf32>, %lse: tensor<2x3x1x5xf32>)
    -> tensor<3x4xf32> {
  %dq, %dk, %dv = nn.attention_grad %do, %q, %k, %v, %o, %lse scale = 0.5
    : (tensor<2x5x3x1x4xf32>, tensor<2x5x3x1x4xf32>, tensor<2x7x3x4xf32>, tensor<2x7x3x4xf32>, tensor<2x5x3x1x4xf32>, tensor<2x3x1x5xf32>)
    -> (tensor<2x5x3x1x4xf32>, tensor<2x7x3x4xf32>, tensor<2x7x3x4xf32>)
  %0 = nn.slice %dk [0, 2, 0, 0] [2, 5, 3, 4] [1, 1, 1, 1] : tensor<2x7x3x4xf32> -> tensor<2x5x3x4xf32>
  %1 = nn.reduce sum %0 dims = [0, 1] : tensor<2x5x3x4xf32> -> tensor<3x4xf32>
  return %1 : tensor<3x4xf32>
}

// -----

// A key bias shared with values, and keys that another product reads too: only
// the addend of keys is left out.
// CHECK-LABEL: func @shared
// CHECK:         %{{.+}}, %[[DK:.+]], %[[DV:.+]] = nn.attention_grad
// CHECK:         %[[BOTH:.+]] = nn.reduce sum %[[DV]] dims = [0, 1]
// CHECK:         %[[OTHER:.+]] = nn.reduce sum %[[TWICE:.+]] dims = [0, 1]
// CHECK:         return %[[BOTH]], %[[OTHER]]
func.func @shared(%do: tensor<2x5x3x1x4xf32>, %q: tensor<2x5x3x1x4xf32>, %k: tensor<2x5x3x4xf32>,
                  %v: tensor<2x5x3x4xf32>, %o: tensor<2x5x3x1x4xf32>, %lse: tensor<2x3x1x5xf32>,
                  %twice: tensor<2x5x3x4xf32>) -> (tensor<3x4xf32>, tensor<3x4xf32>) {
  %dq, %dk, %dv = nn.attention_grad %do, %q, %k, %v, %o, %lse scale = 0.5
    : (tensor<2x5x3x1x4xf32>, tensor<2x5x3x1x4xf32>, tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32>, tensor<2x5x3x1x4xf32>, tensor<2x3x1x5xf32>)
    -> (tensor<2x5x3x1x4xf32>, tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32>)
  %0 = arith.addf %dk, %dv : tensor<2x5x3x4xf32>
  %1 = nn.reduce sum %0 dims = [0, 1] : tensor<2x5x3x4xf32> -> tensor<3x4xf32>
  %2 = arith.addf %dk, %twice : tensor<2x5x3x4xf32>
  %3 = nn.reduce sum %2 dims = [0, 1] : tensor<2x5x3x4xf32> -> tensor<3x4xf32>
  return %1, %3 : tensor<3x4xf32>, tensor<3x4xf32>
}

// -----

// Keys that are repeated over groups of queries, and casts of mixed precision.
// CHECK-LABEL: func @repeated
// CHECK:         %[[ZERO:.+]] = arith.constant dense<0.000000e+00> : tensor<3x4xf32>
// CHECK:         return %[[ZERO]]
func.func @repeated(%do: tensor<2x5x6x1x4xbf16>, %q: tensor<2x5x6x1x4xbf16>, %k: tensor<2x5x6x4xbf16>,
                    %v: tensor<2x5x6x4xbf16>, %o: tensor<2x5x6x1x4xbf16>, %lse: tensor<2x6x1x5xf32>)
    -> tensor<3x4xf32> {
  %dq, %dk, %dv = nn.attention_grad %do, %q, %k, %v, %o, %lse scale = 0.5
    : (tensor<2x5x6x1x4xbf16>, tensor<2x5x6x1x4xbf16>, tensor<2x5x6x4xbf16>, tensor<2x5x6x4xbf16>, tensor<2x5x6x1x4xbf16>, tensor<2x6x1x5xf32>)
    -> (tensor<2x5x6x1x4xbf16>, tensor<2x5x6x4xbf16>, tensor<2x5x6x4xbf16>)
  %0 = arith.extf %dk : tensor<2x5x6x4xbf16> to tensor<2x5x6x4xf32>
  %1 = nn.reshape %0 : tensor<2x5x6x4xf32> -> tensor<2x5x3x2x4xf32>
  %2 = nn.reduce sum %1 dims = [3] : tensor<2x5x3x2x4xf32> -> tensor<2x5x3x4xf32>
  %3 = nn.reduce sum %2 dims = [0, 1] : tensor<2x5x3x4xf32> -> tensor<3x4xf32>
  return %3 : tensor<3x4xf32>
}
