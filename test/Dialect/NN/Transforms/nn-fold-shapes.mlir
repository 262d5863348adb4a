// RUN: cleave-opt %s -nn-fold-shapes | FileCheck %s

// The flattening around a product disappears; splitting its result becomes a
// reshape of the weight.
// CHECK-LABEL: func @linear
// CHECK-SAME:    %[[X:.+]]: tensor<2x5x6xf32>, %[[W:.+]]: tensor<6x12xf32>
// CHECK:         %[[V:.+]] = nn.reshape %[[W]] : tensor<6x12xf32> -> tensor<6x3x4xf32>
// CHECK:         %[[Y:.+]] = nn.einsum "abc,cde->abde" %[[X]], %[[V]]
// CHECK:         return %[[Y]] : tensor<2x5x3x4xf32>
func.func @linear(%x: tensor<2x5x6xf32>, %w: tensor<6x12xf32>) -> tensor<2x5x3x4xf32> {
  %0 = nn.reshape %x : tensor<2x5x6xf32> -> tensor<10x6xf32>
  %1 = nn.einsum "ab,bc->ac" %0, %w : tensor<10x6xf32>, tensor<6x12xf32> -> tensor<10x12xf32>
  %2 = nn.reshape %1 : tensor<10x12xf32> -> tensor<2x5x3x4xf32>
  return %2 : tensor<2x5x3x4xf32>
}

// A third of a fused dimension that is split further: the slice takes one index.
// CHECK-LABEL: func @slice_of_fused
// CHECK:         nn.slice %{{.+}} [0, 1, 0, 0] [5, 1, 2, 4] [1, 1, 1, 1] : tensor<5x3x2x4xf32>
// CHECK-NOT:     nn.transpose
func.func @slice_of_fused(%x: tensor<5x6xf32>, %w: tensor<6x24xf32>) -> tensor<5x2x4xf32> {
  %0 = nn.einsum "ab,bc->ac" %x, %w : tensor<5x6xf32>, tensor<6x24xf32> -> tensor<5x24xf32>
  %1 = nn.slice %0 [0, 8] [5, 8] [1, 1] : tensor<5x24xf32> -> tensor<5x8xf32>
  %2 = nn.reshape %1 : tensor<5x8xf32> -> tensor<5x2x4xf32>
  return %2 : tensor<5x2x4xf32>
}

// The splits 24 = 4 x 6 and 24 = 3 x 8 contradict each other: one of them stays.
// CHECK-LABEL: func @negative_contradiction
// CHECK:         nn.reshape %{{.+}} : tensor<{{.*}}> -> tensor<3x8xf32>
func.func @negative_contradiction(%x: tensor<24xf32>, %y: tensor<4x6xf32>) -> tensor<3x8xf32> {
  %0 = nn.reshape %x : tensor<24xf32> -> tensor<4x6xf32>
  %1 = arith.addf %0, %y : tensor<4x6xf32>
  %2 = nn.reshape %1 : tensor<4x6xf32> -> tensor<3x8xf32>
  %3 = math.exp %2 : tensor<3x8xf32>
  return %3 : tensor<3x8xf32>
}

// The normalized dimension of a norm is not split.
// CHECK-LABEL: func @negative_rows
// CHECK:         nn.rms_norm %{{.+}} : (tensor<5x12xf32>
// CHECK:         nn.reshape %{{.+}} : tensor<5x12xf32> -> tensor<5x3x4xf32>
func.func @negative_rows(%x: tensor<5x12xf32>, %w: tensor<12xf32>) -> tensor<5x3x4xf32> {
  %0, %rstd = nn.rms_norm %x, %w epsilon = 1.0e-6 : (tensor<5x12xf32>, tensor<12xf32>) -> (tensor<5x12xf32>, tensor<5xf32>)
  %1 = nn.reshape %0 : tensor<5x12xf32> -> tensor<5x3x4xf32>
  return %1 : tensor<5x3x4xf32>
}

// Transposes of both operands move below the addition and become einsum labels.
// CHECK-LABEL: func @transposes
// CHECK-NOT:     nn.transpose
// CHECK:         %[[S:.+]] = arith.addf %{{.+}}, %{{.+}} : tensor<3x2xf32>
// CHECK:         nn.einsum "ab,ac->bc" %[[S]], %{{.+}}
func.func @transposes(%x: tensor<3x2xf32>, %y: tensor<3x2xf32>, %w: tensor<3x4xf32>) -> tensor<2x4xf32> {
  %0 = nn.transpose %x [1, 0] : tensor<3x2xf32> -> tensor<2x3xf32>
  %1 = nn.transpose %y [1, 0] : tensor<3x2xf32> -> tensor<2x3xf32>
  %2 = arith.addf %0, %1 : tensor<2x3xf32>
  %3 = nn.einsum "ab,bc->ac" %2, %w : tensor<2x3xf32>, tensor<3x4xf32> -> tensor<2x4xf32>
  return %3 : tensor<2x4xf32>
}

// Repeated key heads: the einsum reads the unrepeated heads.
// CHECK-LABEL: func @repeated_heads
// CHECK:         nn.einsum "abcd,aed->abce" %{{.+}}, %{{.+}} : tensor<2x3x5x4xf32>, tensor<2x7x4xf32> -> tensor<2x3x5x7xf32>
func.func @repeated_heads(%q: tensor<6x5x4xf32>, %k: tensor<2x7x4xf32>) -> tensor<6x5x7xf32> {
  %0 = nn.broadcast %k dims = [0, 2, 3] : tensor<2x7x4xf32> -> tensor<2x3x7x4xf32>
  %1 = nn.reshape %0 : tensor<2x3x7x4xf32> -> tensor<6x7x4xf32>
  %2 = nn.einsum "hsd,htd->hst" %q, %1 : tensor<6x5x4xf32>, tensor<6x7x4xf32> -> tensor<6x5x7xf32>
  return %2 : tensor<6x5x7xf32>
}

// Operations on repeated values are done once, before the repetition.
// CHECK-LABEL: func @narrow
// CHECK:         %[[E:.+]] = math.exp %{{.+}} : tensor<3xf32>
// CHECK:         nn.broadcast %[[E]] dims = [1] : tensor<3xf32> -> tensor<2x3xf32>
func.func @narrow(%x: tensor<3xf32>) -> tensor<2x3xf32> {
  %0 = nn.broadcast %x dims = [1] : tensor<3xf32> -> tensor<2x3xf32>
  %1 = math.exp %0 : tensor<2x3xf32>
  return %1 : tensor<2x3xf32>
}

// Arithmetic on a boolean becomes a select between two numbers.
// CHECK-LABEL: func @mask
// CHECK-SAME:    %[[M:.+]]: tensor<3xi1>
// CHECK-DAG:     %[[HIDDEN:.+]] = arith.constant dense<-1.000000e+09> : tensor<3xf32>
// CHECK-DAG:     %[[SEEN:.+]] = arith.constant dense<{{-?}}0.000000e+00> : tensor<3xf32>
// CHECK:         %[[S:.+]] = arith.select %[[M]], %[[SEEN]], %[[HIDDEN]]
// CHECK:         return %[[S]]
func.func @mask(%m: tensor<3xi1>) -> tensor<3xf32> {
  %one = arith.constant dense<1.0> : tensor<3xf32>
  %large = arith.constant dense<-1.0e9> : tensor<3xf32>
  %0 = arith.uitofp %m : tensor<3xi1> to tensor<3xf32>
  %1 = arith.subf %one, %0 : tensor<3xf32>
  %2 = arith.mulf %1, %large : tensor<3xf32>
  return %2 : tensor<3xf32>
}

// Heads that share keys: rotary positions meet keys that are repeated over the
// heads and then transposed. Both sides are broadcasts; a transpose that went
// from one to the other and back would never end.
// CHECK-LABEL: func @shared_keys
// CHECK:         nn.slice %{{.+}} : tensor<4x2x16xf32> -> tensor<4x2x8xf32>
// CHECK-NOT:     tensor<2x2x4x8xf32>
// CHECK:         nn.transpose %{{.+}} : tensor<4x2x16xf32> -> tensor<2x4x16xf32>
// CHECK:         nn.broadcast %{{.+}} dims = [0, 2, 3] : tensor<2x4x16xf32> -> tensor<2x2x4x16xf32>
func.func @shared_keys(%k: tensor<4x2x2x16xf32>, %c: tensor<4x16xf32>) -> tensor<2x2x4x16xf32> {
  %0 = nn.transpose %k [1, 0, 2, 3] : tensor<4x2x2x16xf32> -> tensor<2x4x2x16xf32>
  %1 = nn.slice %0 [1, 0, 0, 0] [1, 4, 2, 16] [1, 1, 1, 1] : tensor<2x4x2x16xf32> -> tensor<1x4x2x16xf32>
  %2 = nn.reshape %1 : tensor<1x4x2x16xf32> -> tensor<4x2x16xf32>
  %3 = nn.broadcast %2 dims = [0, 1, 3] : tensor<4x2x16xf32> -> tensor<4x2x2x16xf32>
  %4 = nn.transpose %3 [1, 2, 0, 3] : tensor<4x2x2x16xf32> -> tensor<2x2x4x16xf32>
  %5 = nn.broadcast %c dims = [2, 3] : tensor<4x16xf32> -> tensor<2x2x4x16xf32>
  %6 = arith.mulf %4, %5 : tensor<2x2x4x16xf32>
  %7 = nn.slice %4 [0, 0, 0, 8] [2, 2, 4, 8] [1, 1, 1, 1] : tensor<2x2x4x16xf32> -> tensor<2x2x4x8xf32>
  %8 = arith.negf %7 : tensor<2x2x4x8xf32>
  %9 = nn.slice %4 [0, 0, 0, 0] [2, 2, 4, 8] [1, 1, 1, 1] : tensor<2x2x4x16xf32> -> tensor<2x2x4x8xf32>
  %10 = nn.concat %8, %9 dim = 3 : tensor<2x2x4x8xf32>, tensor<2x2x4x8xf32> -> tensor<2x2x4x16xf32>
  %11 = arith.mulf %10, %5 : tensor<2x2x4x16xf32>
  %12 = arith.addf %6, %11 : tensor<2x2x4x16xf32>
  return %12 : tensor<2x2x4x16xf32>
}

// Rows are written one part after the other, in another order of dimensions: the
// initial content and the transpose disappear.
// CHECK-LABEL: func @written_rows
// CHECK-SAME:    %[[X:.+]]: tensor<5x2xf32>, %[[Y:.+]]: tensor<5x4xf32>
// CHECK-NEXT:    %[[Z:.+]] = nn.concat %[[X]], %[[Y]] dim = 1
// CHECK-NEXT:    return %[[Z]]
func.func @written_rows(%x: tensor<5x2xf32>, %y: tensor<5x4xf32>) -> tensor<5x6xf32> {
  %zero = arith.constant dense<0.0> : tensor<4x5xf32>
  %0 = nn.transpose %x [1, 0] : tensor<5x2xf32> -> tensor<2x5xf32>
  %1 = nn.concat %0, %zero dim = 0 : tensor<2x5xf32>, tensor<4x5xf32> -> tensor<6x5xf32>
  %2 = nn.transpose %y [1, 0] : tensor<5x4xf32> -> tensor<4x5xf32>
  %3 = nn.slice %1 [0, 0] [2, 5] [1, 1] : tensor<6x5xf32> -> tensor<2x5xf32>
  %4 = nn.concat %3, %2 dim = 0 : tensor<2x5xf32>, tensor<4x5xf32> -> tensor<6x5xf32>
  %5 = nn.transpose %4 [1, 0] : tensor<6x5xf32> -> tensor<5x6xf32>
  return %5 : tensor<5x6xf32>
}

// A transpose of one operand moves to the others; slices of a concatenation become its operands.
// CHECK-LABEL: func @transposed_operand
// CHECK-SAME:    %[[X:.+]]: tensor<5x2xf32>, %[[Y:.+]]: tensor<4x5xf32>
// CHECK-DAG:     %[[T:.+]] = nn.transpose %[[Y]] [1, 0]
// CHECK-DAG:     %[[Z:.+]] = nn.concat %[[X]], %[[T]] dim = 1
// CHECK-DAG:     %[[S:.+]] = nn.slice %[[Y]] [1, 0] [2, 5] [2, 1]
// CHECK:         return %[[Z]], %[[S]]
func.func @transposed_operand(%x: tensor<5x2xf32>, %y: tensor<4x5xf32>) -> (tensor<5x6xf32>, tensor<2x5xf32>) {
  %0 = nn.transpose %x [1, 0] : tensor<5x2xf32> -> tensor<2x5xf32>
  %1 = nn.concat %0, %y dim = 0 : tensor<2x5xf32>, tensor<4x5xf32> -> tensor<6x5xf32>
  %2 = nn.transpose %1 [1, 0] : tensor<6x5xf32> -> tensor<5x6xf32>
  %3 = nn.slice %1 [3, 0] [2, 5] [2, 1] : tensor<6x5xf32> -> tensor<2x5xf32>
  return %2, %3 : tensor<5x6xf32>, tensor<2x5xf32>
}

// A slice that spans two operands of a concatenation stays.
// CHECK-LABEL: func @negative_slice_of_both
// CHECK:         nn.concat
// CHECK:         nn.slice
func.func @negative_slice_of_both(%x: tensor<2xf32>, %y: tensor<4xf32>) -> tensor<3xf32> {
  %0 = nn.concat %x, %y dim = 0 : tensor<2xf32>, tensor<4xf32> -> tensor<6xf32>
  %1 = nn.slice %0 [1] [3] [1] : tensor<6xf32> -> tensor<3xf32>
  return %1 : tensor<3xf32>
}

// A lookup keeps the row that gets no gradient.
// CHECK-LABEL: func @frozen_row
// CHECK:         nn.gather %{{.+}}, %{{.+}} dim = 0 {nn.frozen_row = 1 : i64} : tensor<7x3x4xf32>
func.func @frozen_row(%t: tensor<7x12xf32>, %ids: tensor<2x5xi64>) -> tensor<2x3x5x4xf32> {
  %0 = nn.gather %t, %ids dim = 0 {nn.frozen_row = 1 : i64} : tensor<7x12xf32>, tensor<2x5xi64> -> tensor<2x5x12xf32>
  %1 = nn.reshape %0 : tensor<2x5x12xf32> -> tensor<2x5x3x4xf32>
  %2 = nn.transpose %1 [0, 2, 1, 3] : tensor<2x5x3x4xf32> -> tensor<2x3x5x4xf32>
  return %2 : tensor<2x3x5x4xf32>
}
