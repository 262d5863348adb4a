// RUN: cleave-opt %s --nn-recompute-residuals | FileCheck %s

// For a gated layer the pass saves the gate's pre-activation and the other
// factor. Their product is also saved, because a matrix product reads it.
// CHECK-LABEL: func @gated
// CHECK:         %[[G:.+]] = nn.einsum
// CHECK:         %[[SG:.+]] = nn.save %[[G]]
// CHECK:         %[[U:.+]] = nn.einsum
// CHECK:         %[[SU:.+]] = nn.save %[[U]]
// CHECK:         %[[S:.+]] = nn.sigmoid
// CHECK-NOT:     nn.save %[[S]]
// CHECK:         nn.save %{{.*}} : tensor<4x6xbf16>
// CHECK:         %[[D:.+]] = nn.einsum
// CHECK-NEXT:    %[[E:.+]] = arith.extf %[[SG]]
// CHECK-NEXT:    %[[AGAIN:.+]] = nn.sigmoid %[[E]]
// CHECK-NEXT:    %[[SILU:.+]] = arith.mulf %[[E]], %[[AGAIN]]
// CHECK-NEXT:    arith.mulf %[[D]], %[[SILU]]
// CHECK-NEXT:    arith.mulf %[[D]], %[[AGAIN]]
// CHECK-NOT:     nn.sigmoid
func.func @gated(%x: tensor<4x5xbf16>, %w: tensor<5x6xbf16>, %v: tensor<5x6xbf16>, %d: tensor<4x3xf32>, %z: tensor<6x3xf32>)
    -> (tensor<4x6xbf16>, tensor<4x6xf32>, tensor<4x6xf32>, tensor<6x4xbf16>, tensor<4x6xbf16>) {
  %0 = nn.einsum "mk,kn->mn" %x, %w : tensor<4x5xbf16>, tensor<5x6xbf16> -> tensor<4x6xbf16>
  %1 = nn.save %0 : tensor<4x6xbf16>
  %2 = nn.einsum "mk,kn->mn" %x, %v : tensor<4x5xbf16>, tensor<5x6xbf16> -> tensor<4x6xbf16>
  %3 = nn.save %2 : tensor<4x6xbf16>
  %4 = arith.extf %0 : tensor<4x6xbf16> to tensor<4x6xf32>
  %5 = nn.sigmoid %4 : tensor<4x6xf32>
  %6 = nn.save %5 : tensor<4x6xf32>
  %7 = arith.mulf %4, %5 : tensor<4x6xf32>
  %8 = nn.save %7 : tensor<4x6xf32>
  %9 = arith.extf %2 : tensor<4x6xbf16> to tensor<4x6xf32>
  %10 = arith.mulf %7, %9 : tensor<4x6xf32>
  %11 = arith.truncf %10 : tensor<4x6xf32> to tensor<4x6xbf16>
  %12 = nn.save %11 : tensor<4x6xbf16>
  %13 = nn.einsum "mo,no->mn" %d, %z : tensor<4x3xf32>, tensor<6x3xf32> -> tensor<4x6xf32>
  %14 = arith.mulf %13, %8 : tensor<4x6xf32>
  %15 = arith.mulf %13, %6 : tensor<4x6xf32>
  %16 = nn.transpose %12 [1, 0] : tensor<4x6xbf16> -> tensor<6x4xbf16>
  %17 = arith.addf %1, %3 : tensor<4x6xbf16>
  return %11, %14, %15, %16, %17 : tensor<4x6xbf16>, tensor<4x6xf32>, tensor<4x6xf32>, tensor<6x4xbf16>, tensor<4x6xbf16>
}

// The operand of the residual is not saved, so the residual cannot be recomputed from it.
// CHECK-LABEL: func @negative_operand_goes
// CHECK:         nn.save
// CHECK-NOT:     nn.sigmoid
// CHECK:         return
func.func @negative_operand_goes(%x: tensor<4xf32>, %d: tensor<4xf32>) -> tensor<4xf32> {
  %0 = math.exp %x : tensor<4xf32>
  %1 = nn.save %0 : tensor<4xf32>
  %2 = arith.mulf %d, %1 : tensor<4xf32>
  return %2 : tensor<4xf32>
}

// The residual leaves the function, for another stage.
// CHECK-LABEL: func @negative_returned
// CHECK:         %[[S:.+]] = nn.sigmoid
// CHECK-NEXT:    %[[R:.+]] = nn.save %[[S]]
// CHECK:         return %{{.*}}, %[[R]]
func.func @negative_returned(%x: tensor<4x5xf32>, %w: tensor<5x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>) {
  %0 = nn.einsum "mk,kn->mn" %x, %w : tensor<4x5xf32>, tensor<5x6xf32> -> tensor<4x6xf32>
  %1 = nn.save %0 : tensor<4x6xf32>
  %2 = nn.sigmoid %0 : tensor<4x6xf32>
  %3 = nn.save %2 : tensor<4x6xf32>
  return %1, %3 : tensor<4x6xf32>, tensor<4x6xf32>
}

// A residual from which another one is computed stays, even if it is marked
// (nn.save) after the other one. Other residuals are recomputed from it.
// CHECK-LABEL: func @marked_behind
// CHECK:         %[[E:.+]] = nn.einsum
// CHECK-NEXT:    %[[SE:.+]] = nn.save %[[E]]
// CHECK-NEXT:    arith.negf %[[E]]
// CHECK-NEXT:    %[[A:.+]] = math.exp %[[E]]
// CHECK-NEXT:    arith.negf %[[A]]
// CHECK-NEXT:    %[[SA:.+]] = nn.save %[[A]]
// CHECK:         arith.negf %[[SE]]
// CHECK:         arith.negf %[[SA]]
// CHECK-NOT:     math.exp
// CHECK:         return
func.func @marked_behind(%x: tensor<4x5xf32>, %w: tensor<5x6xf32>, %d: tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>) {
  %0 = nn.einsum "mk,kn->mn" %x, %w : tensor<4x5xf32>, tensor<5x6xf32> -> tensor<4x6xf32>
  %1 = nn.save %0 : tensor<4x6xf32>
  %2 = arith.negf %0 : tensor<4x6xf32>
  %3 = nn.save %2 : tensor<4x6xf32>
  %4 = math.exp %0 : tensor<4x6xf32>
  %5 = arith.negf %4 : tensor<4x6xf32>
  %6 = nn.save %5 : tensor<4x6xf32>
  %7 = nn.save %4 : tensor<4x6xf32>
  %8 = arith.mulf %d, %1 : tensor<4x6xf32>
  %9 = arith.mulf %d, %3 : tensor<4x6xf32>
  %10 = arith.mulf %d, %6 : tensor<4x6xf32>
  %11 = arith.mulf %d, %7 : tensor<4x6xf32>
  return %8, %9, %10, %11 : tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>
}
