// RUN: cleave-opt %s -split-input-file --nn-drop-zero-sums --canonicalize | FileCheck %s

// The gradient of a key bias is zero if it sums over all keys; that of a value
// bias is not.
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

// In a fused QKV bias, the part for keys is left out of the sum. A sum over
// samples alone stays, and so does one that mixes heads.
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

// A softcap (tanh) still sees a constant added to the scores.
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

// The cached part of the keys is a slice of their cotangents, so its sum does
// not cover all keys.
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

// A bias shared by keys and values, and keys that another product also reads:
// only the term of the attention's keys is left out.
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

// Keys repeated over query groups, and the casts of mixed precision.
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

// -----

// Attention written out, as nn-differentiate leaves it: the softmax is a residual, read through
// nn.save. Scores are scaled by a constant and a factor per head, keys have a fused bias.
// CHECK-LABEL: func @spelled
// CHECK:         %[[DK:.+]] = nn.einsum "bnqk,bqnd->bknd"
// CHECK:         %[[KEYS:.+]] = nn.pad %[[DK]]
// CHECK:         %[[VALUES:.+]] = nn.pad %arg3
// CHECK:         %[[BIAS:.+]] = nn.reduce sum %[[VALUES]] dims = [0, 1]
// CHECK:         return %[[BIAS]], %{{.+}} : tensor<6x4xf32>
func.func @spelled(%g: tensor<2x3x5x7xf32>, %q: tensor<2x5x3x4xf32>, %k: tensor<2x7x3x4xf32>,
                   %dv: tensor<2x7x3x4xf32>, %heads: tensor<3xf32>)
    -> (tensor<6x4xf32>, tensor<2x7x6x4xf32>) {
  %half = arith.constant dense<0.5> : tensor<f32>
  %scale = nn.broadcast %half dims = [] : tensor<f32> -> tensor<2x3x5x7xf32>
  %slope = nn.broadcast %heads dims = [1] : tensor<3xf32> -> tensor<2x3x5x7xf32>
  %products = nn.einsum "bqnd,bknd->bnqk" %q, %k : tensor<2x5x3x4xf32>, tensor<2x7x3x4xf32> -> tensor<2x3x5x7xf32>
  %scaled = arith.divf %products, %scale : tensor<2x3x5x7xf32>
  %scores = arith.mulf %scaled, %slope : tensor<2x3x5x7xf32>
  %p = nn.softmax %scores : tensor<2x3x5x7xf32>
  %y = nn.save %p : tensor<2x3x5x7xf32>
  %0 = arith.mulf %g, %y : tensor<2x3x5x7xf32>
  %1 = nn.reduce sum %0 dims = [3] : tensor<2x3x5x7xf32> -> tensor<2x3x5xf32>
  %2 = nn.broadcast %1 dims = [0, 1, 2] : tensor<2x3x5xf32> -> tensor<2x3x5x7xf32>
  %3 = arith.subf %g, %2 : tensor<2x3x5x7xf32>
  %4 = arith.mulf %y, %3 : tensor<2x3x5x7xf32>
  %5 = arith.mulf %4, %slope : tensor<2x3x5x7xf32>
  %6 = arith.divf %5, %scale : tensor<2x3x5x7xf32>
  %7 = nn.einsum "bnqk,bqnd->bknd" %6, %q : tensor<2x3x5x7xf32>, tensor<2x5x3x4xf32> -> tensor<2x7x3x4xf32>
  %8 = nn.pad %7 low = [0, 0, 0, 0] high = [0, 0, 3, 0] value = 0.0 : tensor<2x7x3x4xf32> -> tensor<2x7x6x4xf32>
  %9 = nn.pad %dv low = [0, 0, 3, 0] high = [0, 0, 0, 0] value = 0.0 : tensor<2x7x3x4xf32> -> tensor<2x7x6x4xf32>
  %10 = arith.addf %8, %9 : tensor<2x7x6x4xf32>
  %11 = nn.reduce sum %10 dims = [0, 1] : tensor<2x7x6x4xf32> -> tensor<6x4xf32>
  return %11, %10 : tensor<6x4xf32>, tensor<2x7x6x4xf32>
}

// -----

// A sum over queries, over samples alone, of another softmax, of a row sum other than the
// softmax's, of scores scaled by a factor per key: none of these is known to be zero.
// CHECK-LABEL: func @others
// CHECK:         %[[QUERIES:.+]] = nn.reduce sum %{{.+}} dims = [0, 2]
// CHECK:         %[[SAMPLES:.+]] = nn.reduce sum %{{.+}} dims = [0]
// CHECK:         %[[MIXED:.+]] = nn.reduce sum %{{.+}} dims = [0, 2, 3]
// CHECK:         %[[OTHER:.+]] = nn.reduce sum %{{.+}} dims = [0, 2, 3]
// CHECK:         %[[SCALED:.+]] = nn.reduce sum %{{.+}} dims = [0, 2, 3]
// CHECK:         %[[COLUMNS:.+]] = nn.reduce sum %{{.+}} dims = [0, 2, 3]
// CHECK:         return %[[QUERIES]], %[[SAMPLES]], %[[MIXED]], %[[OTHER]], %[[SCALED]], %[[COLUMNS]]
func.func @others(%g: tensor<2x3x7x7xf32>, %scores: tensor<2x3x7x7xf32>, %others: tensor<2x3x7x7xf32>,
                  %keys: tensor<7xf32>)
    -> (tensor<3x7xf32>, tensor<3x7x7xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) {
  %p = nn.softmax %scores : tensor<2x3x7x7xf32>
  %y = nn.save %p : tensor<2x3x7x7xf32>
  %p2 = nn.softmax %others : tensor<2x3x7x7xf32>
  %y2 = nn.save %p2 : tensor<2x3x7x7xf32>
  %0 = arith.mulf %g, %y : tensor<2x3x7x7xf32>
  %1 = nn.reduce sum %0 dims = [3] : tensor<2x3x7x7xf32> -> tensor<2x3x7xf32>
  %2 = nn.broadcast %1 dims = [0, 1, 2] : tensor<2x3x7xf32> -> tensor<2x3x7x7xf32>
  %3 = arith.subf %g, %2 : tensor<2x3x7x7xf32>
  %4 = arith.mulf %y, %3 : tensor<2x3x7x7xf32>
  %queries = nn.reduce sum %4 dims = [0, 2] : tensor<2x3x7x7xf32> -> tensor<3x7xf32>
  %samples = nn.reduce sum %4 dims = [0] : tensor<2x3x7x7xf32> -> tensor<3x7x7xf32>
  // The factor is another softmax than the one in the row sum.
  %5 = arith.mulf %y2, %3 : tensor<2x3x7x7xf32>
  %mixed = nn.reduce sum %5 dims = [0, 2, 3] : tensor<2x3x7x7xf32> -> tensor<3xf32>
  // The factor is not a softmax at all.
  %6 = arith.mulf %others, %3 : tensor<2x3x7x7xf32>
  %other = nn.reduce sum %6 dims = [0, 2, 3] : tensor<2x3x7x7xf32> -> tensor<3xf32>
  %7 = nn.broadcast %keys dims = [3] : tensor<7xf32> -> tensor<2x3x7x7xf32>
  %8 = arith.mulf %4, %7 : tensor<2x3x7x7xf32>
  %scaled = nn.reduce sum %8 dims = [0, 2, 3] : tensor<2x3x7x7xf32> -> tensor<3xf32>
  // Column sums are broadcast instead of row sums.
  %9 = nn.reduce sum %0 dims = [2] : tensor<2x3x7x7xf32> -> tensor<2x3x7xf32>
  %10 = nn.broadcast %9 dims = [0, 1, 2] : tensor<2x3x7xf32> -> tensor<2x3x7x7xf32>
  %11 = arith.subf %g, %10 : tensor<2x3x7x7xf32>
  %12 = arith.mulf %y, %11 : tensor<2x3x7x7xf32>
  %columns = nn.reduce sum %12 dims = [0, 2, 3] : tensor<2x3x7x7xf32> -> tensor<3xf32>
  return %queries, %samples, %mixed, %other, %scaled, %columns
    : tensor<3x7xf32>, tensor<3x7x7xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>
}

// -----

// The gradient of queries contracts the score gradients with the keys. The gradient of a layer's
// input is a further product of the gradient of keys. Both sums stay.
// CHECK-LABEL: func @products
// CHECK:         %[[QUERIES:.+]] = nn.reduce sum %{{.+}} dims = [0, 1]
// CHECK:         %[[INPUT:.+]] = nn.reduce sum %{{.+}} dims = [0, 1]
// CHECK:         return %[[QUERIES]], %[[INPUT]]
func.func @products(%g: tensor<2x3x7x7xf32>, %scores: tensor<2x3x7x7xf32>, %q: tensor<2x7x3x4xf32>,
                    %k: tensor<2x7x3x4xf32>, %w: tensor<6x3x4xf32>) -> (tensor<3x4xf32>, tensor<6xf32>) {
  %p = nn.softmax %scores : tensor<2x3x7x7xf32>
  %y = nn.save %p : tensor<2x3x7x7xf32>
  %0 = arith.mulf %g, %y : tensor<2x3x7x7xf32>
  %1 = nn.reduce sum %0 dims = [3] : tensor<2x3x7x7xf32> -> tensor<2x3x7xf32>
  %2 = nn.broadcast %1 dims = [0, 1, 2] : tensor<2x3x7xf32> -> tensor<2x3x7x7xf32>
  %3 = arith.subf %g, %2 : tensor<2x3x7x7xf32>
  %4 = arith.mulf %y, %3 : tensor<2x3x7x7xf32>
  %dq = nn.einsum "bnqk,bknd->bqnd" %4, %k : tensor<2x3x7x7xf32>, tensor<2x7x3x4xf32> -> tensor<2x7x3x4xf32>
  %queries = nn.reduce sum %dq dims = [0, 1] : tensor<2x7x3x4xf32> -> tensor<3x4xf32>
  %dk = nn.einsum "bnqk,bqnd->bknd" %4, %q : tensor<2x3x7x7xf32>, tensor<2x7x3x4xf32> -> tensor<2x7x3x4xf32>
  %dx = nn.einsum "bknd,hnd->bkh" %dk, %w : tensor<2x7x3x4xf32>, tensor<6x3x4xf32> -> tensor<2x7x6xf32>
  %input = nn.reduce sum %dx dims = [0, 1] : tensor<2x7x6xf32> -> tensor<6xf32>
  return %queries, %input : tensor<3x4xf32>, tensor<6xf32>
}

// -----

// Masked scores (-inf, or the lowest finite number in place of a product) have probability zero, so
// the masked terms of the derivative are zero. Sums stay if real scores may be as low as the lowest
// number, if the masks differ, or if the masked score is merely small.
// CHECK-LABEL: func @masked
// CHECK:         %[[ZERO:.+]] = arith.constant dense<0.000000e+00> : tensor<3xf32>
// CHECK-NOT:     nn.reduce sum %{{.+}} dims = [0, 2, 3]
// CHECK:         %[[PADDED:.+]] = nn.reduce sum %{{.+}} dims = [0, 2, 3]
// CHECK:         %[[OTHER:.+]] = nn.reduce sum %{{.+}} dims = [0, 2, 3]
// CHECK:         %[[SMALL:.+]] = nn.reduce sum %{{.+}} dims = [0, 2, 3]
// CHECK:         return %[[ZERO]], %[[ZERO]], %[[PADDED]], %[[OTHER]], %[[SMALL]]
func.func @masked(%g: tensor<2x3x5x7xf32>, %q: tensor<2x5x3x4xf32>, %k: tensor<2x7x3x4xf32>,
                  %padding: tensor<2x3x5x7xf32>, %mask: tensor<5x7xi1>, %mask2: tensor<5x7xi1>)
    -> (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) {
  %zero = arith.constant dense<0.0> : tensor<2x3x5x7xf32>
  %none = arith.constant dense<0xFF800000> : tensor<2x3x5x7xf32>
  %lowest = arith.constant dense<-3.40282347E+38> : tensor<2x3x5x7xf32>
  %low = arith.constant dense<-1.0e4> : tensor<2x3x5x7xf32>
  %whole = nn.broadcast %mask dims = [2, 3] : tensor<5x7xi1> -> tensor<2x3x5x7xi1>
  %saved = nn.save %mask : tensor<5x7xi1>
  %again = nn.broadcast %saved dims = [2, 3] : tensor<5x7xi1> -> tensor<2x3x5x7xi1>
  %another = nn.broadcast %mask2 dims = [2, 3] : tensor<5x7xi1> -> tensor<2x3x5x7xi1>
  %products = nn.einsum "bqnd,bknd->bnqk" %q, %k : tensor<2x5x3x4xf32>, tensor<2x7x3x4xf32> -> tensor<2x3x5x7xf32>
  %sums = arith.addf %products, %padding : tensor<2x3x5x7xf32>

  %a = arith.select %whole, %sums, %none : tensor<2x3x5x7xi1>, tensor<2x3x5x7xf32>
  %ap = nn.softmax %a : tensor<2x3x5x7xf32>
  %ay = nn.save %ap : tensor<2x3x5x7xf32>
  %a0 = arith.mulf %g, %ay : tensor<2x3x5x7xf32>
  %a1 = nn.reduce sum %a0 dims = [3] : tensor<2x3x5x7xf32> -> tensor<2x3x5xf32>
  %a2 = nn.broadcast %a1 dims = [0, 1, 2] : tensor<2x3x5xf32> -> tensor<2x3x5x7xf32>
  %a3 = arith.subf %g, %a2 : tensor<2x3x5x7xf32>
  %a4 = arith.mulf %ay, %a3 : tensor<2x3x5x7xf32>
  %a5 = arith.select %again, %a4, %zero : tensor<2x3x5x7xi1>, tensor<2x3x5x7xf32>
  %a6 = nn.reduce sum %a5 dims = [0, 2, 3] : tensor<2x3x5x7xf32> -> tensor<3xf32>

  %b = arith.select %whole, %lowest, %products : tensor<2x3x5x7xi1>, tensor<2x3x5x7xf32>
  %bp = nn.softmax %b : tensor<2x3x5x7xf32>
  %by = nn.save %bp : tensor<2x3x5x7xf32>
  %b0 = arith.mulf %g, %by : tensor<2x3x5x7xf32>
  %b1 = nn.reduce sum %b0 dims = [3] : tensor<2x3x5x7xf32> -> tensor<2x3x5xf32>
  %b2 = nn.broadcast %b1 dims = [0, 1, 2] : tensor<2x3x5xf32> -> tensor<2x3x5x7xf32>
  %b3 = arith.subf %g, %b2 : tensor<2x3x5x7xf32>
  %b4 = arith.mulf %by, %b3 : tensor<2x3x5x7xf32>
  %b5 = arith.select %again, %zero, %b4 : tensor<2x3x5x7xi1>, tensor<2x3x5x7xf32>
  %b6 = nn.reduce sum %b5 dims = [0, 2, 3] : tensor<2x3x5x7xf32> -> tensor<3xf32>

  %c = arith.select %whole, %lowest, %sums : tensor<2x3x5x7xi1>, tensor<2x3x5x7xf32>
  %cp = nn.softmax %c : tensor<2x3x5x7xf32>
  %cy = nn.save %cp : tensor<2x3x5x7xf32>
  %c0 = arith.mulf %g, %cy : tensor<2x3x5x7xf32>
  %c1 = nn.reduce sum %c0 dims = [3] : tensor<2x3x5x7xf32> -> tensor<2x3x5xf32>
  %c2 = nn.broadcast %c1 dims = [0, 1, 2] : tensor<2x3x5xf32> -> tensor<2x3x5x7xf32>
  %c3 = arith.subf %g, %c2 : tensor<2x3x5x7xf32>
  %c4 = arith.mulf %cy, %c3 : tensor<2x3x5x7xf32>
  %c5 = arith.select %again, %zero, %c4 : tensor<2x3x5x7xi1>, tensor<2x3x5x7xf32>
  %c6 = nn.reduce sum %c5 dims = [0, 2, 3] : tensor<2x3x5x7xf32> -> tensor<3xf32>

  %d5 = arith.select %another, %a4, %zero : tensor<2x3x5x7xi1>, tensor<2x3x5x7xf32>
  %d6 = nn.reduce sum %d5 dims = [0, 2, 3] : tensor<2x3x5x7xf32> -> tensor<3xf32>

  %e = arith.select %whole, %products, %low : tensor<2x3x5x7xi1>, tensor<2x3x5x7xf32>
  %ep = nn.softmax %e : tensor<2x3x5x7xf32>
  %ey = nn.save %ep : tensor<2x3x5x7xf32>
  %e0 = arith.mulf %g, %ey : tensor<2x3x5x7xf32>
  %e1 = nn.reduce sum %e0 dims = [3] : tensor<2x3x5x7xf32> -> tensor<2x3x5xf32>
  %e2 = nn.broadcast %e1 dims = [0, 1, 2] : tensor<2x3x5xf32> -> tensor<2x3x5x7xf32>
  %e3 = arith.subf %g, %e2 : tensor<2x3x5x7xf32>
  %e4 = arith.mulf %ey, %e3 : tensor<2x3x5x7xf32>
  %e5 = arith.select %again, %e4, %zero : tensor<2x3x5x7xi1>, tensor<2x3x5x7xf32>
  %e6 = nn.reduce sum %e5 dims = [0, 2, 3] : tensor<2x3x5x7xf32> -> tensor<3xf32>
  return %a6, %b6, %c6, %d6, %e6 : tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>
}
