// RUN: cleave-opt %s --nn-select-library=device=cuda | FileCheck %s
// RUN: cleave-opt %s --nn-select-library | FileCheck %s --check-prefix=CPU

// On devices the GEMM adds the bias before it rounds the product. Later
// operations read the GEMM's result.
// CHECK-LABEL: func @bias
// CHECK-SAME:    (%[[X:.+]]: tensor<4x5xbf16>, %[[W:.+]]: tensor<5x6xbf16>, %[[B:.+]]: tensor<6xbf16>)
// CHECK-NEXT:    %[[C:.+]] = rt.gemm a(%[[X]] [0, 5, 1]) b(%[[W]] [0, 6, 1]) bias(%[[B]]) c [0, 6, 1] m = 4 n = 6 k = 5
// CHECK-NEXT:    %[[E:.+]] = arith.extf %[[C]]
// CHECK-NEXT:    nn.gelu tanh %[[E]]
// CHECK-NOT:     arith.addf
// CPU-LABEL:   func @bias
// CPU:           rt.gemm
// CPU-NOT:       bias(
// CPU:           arith.addf
func.func @bias(%x: tensor<4x5xbf16>, %w: tensor<5x6xbf16>, %b: tensor<6xbf16>) -> (tensor<4x6xf32>, tensor<4x6xbf16>) {
  %0 = nn.einsum "mk,kn->mn" %x, %w : tensor<4x5xbf16>, tensor<5x6xbf16> -> tensor<4x6xbf16>
  %1 = nn.broadcast %b dims = [1] : tensor<6xbf16> -> tensor<4x6xbf16>
  %2 = arith.extf %0 : tensor<4x6xbf16> to tensor<4x6xf32>
  %3 = arith.extf %1 : tensor<4x6xbf16> to tensor<4x6xf32>
  %4 = arith.addf %2, %3 : tensor<4x6xf32>
  %5 = arith.truncf %4 : tensor<4x6xf32> to tensor<4x6xbf16>
  %6 = arith.extf %5 : tensor<4x6xbf16> to tensor<4x6xf32>
  %7 = nn.gelu tanh %6 : tensor<4x6xf32>
  return %7, %5 : tensor<4x6xf32>, tensor<4x6xbf16>
}

// The sum is read before it is rounded, or the other term is not a bias.
// CHECK-LABEL: func @negative_bias
// CHECK-NOT:     bias(
// CHECK:         return
func.func @negative_bias(%x: tensor<4x5xbf16>, %w: tensor<5x6xbf16>, %b: tensor<6xbf16>, %r: tensor<4x6xbf16>) -> (tensor<4x6xf32>, tensor<4x6xbf16>, tensor<4x6xbf16>) {
  %0 = nn.einsum "mk,kn->mn" %x, %w : tensor<4x5xbf16>, tensor<5x6xbf16> -> tensor<4x6xbf16>
  %1 = nn.broadcast %b dims = [1] : tensor<6xbf16> -> tensor<4x6xbf16>
  %2 = arith.extf %0 : tensor<4x6xbf16> to tensor<4x6xf32>
  %3 = arith.extf %1 : tensor<4x6xbf16> to tensor<4x6xf32>
  %4 = arith.addf %2, %3 : tensor<4x6xf32>
  %5 = arith.truncf %4 : tensor<4x6xf32> to tensor<4x6xbf16>
  %6 = nn.einsum "mk,kn->mn" %x, %w : tensor<4x5xbf16>, tensor<5x6xbf16> -> tensor<4x6xbf16>
  %7 = arith.extf %6 : tensor<4x6xbf16> to tensor<4x6xf32>
  %8 = arith.extf %r : tensor<4x6xbf16> to tensor<4x6xf32>
  %9 = arith.addf %7, %8 : tensor<4x6xf32>
  %10 = arith.truncf %9 : tensor<4x6xf32> to tensor<4x6xbf16>
  return %4, %5, %10 : tensor<4x6xf32>, tensor<4x6xbf16>, tensor<4x6xbf16>
}

// The gradients of three slices of a projection become one concatenation
// without sums, so attention can write them into one buffer.
// CHECK-LABEL: func @pieces
// CHECK-SAME:    (%[[Q:.+]]: tensor<4x1x2xbf16>, %[[K:.+]]: tensor<4x1x2xbf16>, %[[V:.+]]: tensor<4x1x2xbf16>)
// CHECK-NEXT:    %[[C:.+]] = nn.concat %[[Q]], %[[K]], %[[V]] dim = 1
// CHECK-NEXT:    return %[[C]]
// CPU-LABEL:   func @pieces
// CPU-NEXT:      nn.concat
func.func @pieces(%q: tensor<4x1x2xbf16>, %k: tensor<4x1x2xbf16>, %v: tensor<4x1x2xbf16>) -> tensor<4x3x2xbf16> {
  %0 = nn.pad %v low = [0, 2, 0] high = [0, 0, 0] value = 0.0 : tensor<4x1x2xbf16> -> tensor<4x3x2xbf16>
  %1 = nn.pad %k low = [0, 1, 0] high = [0, 1, 0] value = 0.0 : tensor<4x1x2xbf16> -> tensor<4x3x2xbf16>
  %2 = arith.extf %0 : tensor<4x3x2xbf16> to tensor<4x3x2xf32>
  %3 = arith.extf %1 : tensor<4x3x2xbf16> to tensor<4x3x2xf32>
  %4 = arith.addf %2, %3 : tensor<4x3x2xf32>
  %5 = arith.truncf %4 : tensor<4x3x2xf32> to tensor<4x3x2xbf16>
  %6 = nn.pad %q low = [0, 0, 0] high = [0, 2, 0] value = 0.0 : tensor<4x1x2xbf16> -> tensor<4x3x2xbf16>
  %7 = arith.extf %5 : tensor<4x3x2xbf16> to tensor<4x3x2xf32>
  %8 = arith.extf %6 : tensor<4x3x2xbf16> to tensor<4x3x2xf32>
  %9 = arith.addf %7, %8 : tensor<4x3x2xf32>
  %10 = arith.truncf %9 : tensor<4x3x2xf32> to tensor<4x3x2xbf16>
  return %10 : tensor<4x3x2xbf16>
}
