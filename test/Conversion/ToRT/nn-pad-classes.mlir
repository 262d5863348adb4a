// RUN: cleave-opt %s --nn-pad-classes | FileCheck %s

// The number of classes is padded for alignment. The loss reads minus infinity in
// the padding; the gradients of both operands read the cotangent unmasked.
// CHECK-LABEL: func @loss
// CHECK-SAME:    (%[[X:.+]]: tensor<4x8xbf16>, %[[W:.+]]: tensor<129x8xbf16>, %[[L:.+]]: tensor<4xi64>
// CHECK-DAG:     %[[N:.+]] = arith.constant dense<129> : tensor<4xi64>
// CHECK-DAG:     %[[NONE:.+]] = arith.constant dense<136> : tensor<4xi64>
// CHECK-DAG:     %[[IN:.+]] = arith.cmpi ult, %[[L]], %[[N]]
// CHECK-DAG:     %[[LABELS:.+]] = arith.select %[[IN]], %[[L]], %[[NONE]]
// CHECK-DAG:     %[[P:.+]] = nn.pad %[[W]] low = [0, 0] high = [7, 0] value = 0.000000e+00
// CHECK-DAG:     %[[Y:.+]] = nn.einsum "bh,ch->bc" %[[X]], %[[P]] {{.*}} -> tensor<4x136xbf16>
// CHECK:         %[[S:.+]] = nn.save %[[Y]] : tensor<4x136xbf16>
// CHECK:         %[[F:.+]] = arith.extf %[[Y]]
// CHECK:         %[[OWN:.+]] = nn.slice %[[F]] [0, 0] [4, 129] [1, 1]
// CHECK:         %[[M:.+]] = nn.pad %[[OWN]] low = [0, 0] high = [0, 7] value = 0xFFF0000000000000
// CHECK:         nn.cross_entropy %[[M]], %[[LABELS]]
// CHECK:         %[[G:.+]] = nn.cross_entropy_grad {{.*}} %[[LABELS]], {{.*}} -> tensor<4x136xf32>
// CHECK:         %[[D:.+]] = arith.truncf %[[G]] : tensor<4x136xf32> to tensor<4x136xbf16>
// CHECK:         %[[DX:.+]] = nn.einsum "bc,ch->bh" %[[D]], %[[P]] : tensor<4x136xbf16>, tensor<136x8xbf16> -> tensor<4x8xbf16>
// CHECK:         %[[DW:.+]] = nn.einsum "bh,bc->ch" %[[X]], %[[D]] {{.*}} -> tensor<136x8xf32>
// CHECK:         %[[CUT:.+]] = nn.slice %[[DW]] [0, 0] [129, 8] [1, 1]
// CHECK:         return %{{.*}}, %[[DX]], %[[CUT]]
func.func @loss(%x: tensor<4x8xbf16>, %w: tensor<129x8xbf16>, %labels: tensor<4xi64>, %g: tensor<4xf32>)
    -> (tensor<4xf32>, tensor<4x8xbf16>, tensor<129x8xf32>) {
  %0 = nn.einsum "bh,ch->bc" %x, %w : tensor<4x8xbf16>, tensor<129x8xbf16> -> tensor<4x129xbf16>
  %1 = nn.save %0 : tensor<4x129xbf16>
  %2 = arith.extf %0 : tensor<4x129xbf16> to tensor<4x129xf32>
  %loss, %lse = nn.cross_entropy %2, %labels ignore_index = -100 : (tensor<4x129xf32>, tensor<4xi64>) -> (tensor<4xf32>, tensor<4xf32>)
  %3 = arith.extf %1 : tensor<4x129xbf16> to tensor<4x129xf32>
  %4 = nn.cross_entropy_grad %g, %3, %labels, %lse ignore_index = -100 : (tensor<4xf32>, tensor<4x129xf32>, tensor<4xi64>, tensor<4xf32>) -> tensor<4x129xf32>
  %5 = arith.truncf %4 : tensor<4x129xf32> to tensor<4x129xbf16>
  %6 = nn.einsum "bc,ch->bh" %5, %w : tensor<4x129xbf16>, tensor<129x8xbf16> -> tensor<4x8xbf16>
  %7 = nn.einsum "bh,bc->ch" %x, %5 : tensor<4x8xbf16>, tensor<4x129xbf16> -> tensor<129x8xf32>
  return %loss, %6, %7 : tensor<4xf32>, tensor<4x8xbf16>, tensor<129x8xf32>
}

// f32 with 129 classes, where the matrix does not have the classes last.
// CHECK-LABEL: func @single_precision
// CHECK:         nn.pad %{{.*}} low = [0, 0] high = [0, 3] value = 0.000000e+00 : tensor<8x129xf32> -> tensor<8x132xf32>
// CHECK:         nn.cross_entropy {{.*}} : (tensor<4x132xf32>, tensor<4xi64>)
func.func @single_precision(%x: tensor<4x8xf32>, %w: tensor<8x129xf32>, %labels: tensor<4xi64>) -> tensor<4xf32> {
  %0 = nn.einsum "bh,hc->bc" %x, %w : tensor<4x8xf32>, tensor<8x129xf32> -> tensor<4x129xf32>
  %loss, %lse = nn.cross_entropy %0, %labels ignore_index = -100 : (tensor<4x129xf32>, tensor<4xi64>) -> (tensor<4xf32>, tensor<4xf32>)
  return %loss : tensor<4xf32>
}

// Rows already aligned to 16 bytes, and a small number of classes: no padding.
// CHECK-LABEL: func @negative_aligned
// CHECK-NOT:     nn.pad
func.func @negative_aligned(%x: tensor<4x8xbf16>, %w: tensor<136x8xbf16>, %v: tensor<7x8xbf16>, %labels: tensor<4xi64>) -> (tensor<4xbf16>, tensor<4xbf16>) {
  %0 = nn.einsum "bh,ch->bc" %x, %w : tensor<4x8xbf16>, tensor<136x8xbf16> -> tensor<4x136xbf16>
  %loss, %lse = nn.cross_entropy %0, %labels ignore_index = -100 : (tensor<4x136xbf16>, tensor<4xi64>) -> (tensor<4xbf16>, tensor<4xbf16>)
  %1 = nn.einsum "bh,ch->bc" %x, %v : tensor<4x8xbf16>, tensor<7x8xbf16> -> tensor<4x7xbf16>
  %loss_0, %lse_0 = nn.cross_entropy %1, %labels ignore_index = -100 : (tensor<4x7xbf16>, tensor<4xi64>) -> (tensor<4xbf16>, tensor<4xbf16>)
  return %loss, %loss_0 : tensor<4xbf16>, tensor<4xbf16>
}

// Another operation reads the logits, or their cotangent: no padding.
// CHECK-LABEL: func @negative_other_readers
// CHECK-NOT:     nn.pad
func.func @negative_other_readers(%x: tensor<4x8xf32>, %w: tensor<129x8xf32>, %labels: tensor<4xi64>, %g: tensor<4xf32>) -> (tensor<4xf32>, tensor<4x129xf32>, tensor<4x129xf32>) {
  %0 = nn.einsum "bh,ch->bc" %x, %w : tensor<4x8xf32>, tensor<129x8xf32> -> tensor<4x129xf32>
  %loss, %lse = nn.cross_entropy %0, %labels ignore_index = -100 : (tensor<4x129xf32>, tensor<4xi64>) -> (tensor<4xf32>, tensor<4xf32>)
  %1 = nn.einsum "bh,ch->bc" %x, %w : tensor<4x8xf32>, tensor<129x8xf32> -> tensor<4x129xf32>
  %loss_0, %lse_0 = nn.cross_entropy %1, %labels ignore_index = -100 : (tensor<4x129xf32>, tensor<4xi64>) -> (tensor<4xf32>, tensor<4xf32>)
  %2 = nn.cross_entropy_grad %g, %1, %labels, %lse_0 ignore_index = -100 : (tensor<4xf32>, tensor<4x129xf32>, tensor<4xi64>, tensor<4xf32>) -> tensor<4x129xf32>
  return %loss, %0, %2 : tensor<4xf32>, tensor<4x129xf32>, tensor<4x129xf32>
}

// A matrix that is multiplied only by the cotangent is padded once, before its
// first reader.
// CHECK-LABEL: func @matrix_of_readers
// CHECK-SAME:    %[[V:[a-z0-9]+]]: tensor<129x7xf32>
// CHECK:         nn.cross_entropy_grad
// CHECK-NEXT:    %[[P:.+]] = nn.pad %[[V]] low = [0, 0] high = [3, 0] value = 0.000000e+00
// CHECK-NEXT:    nn.einsum "bc,ck->bk" %{{.+}}, %[[P]]
// CHECK-NEXT:    nn.einsum "bc,ck->kb" %{{.+}}, %[[P]]
func.func @matrix_of_readers(%x: tensor<4x8xf32>, %w: tensor<129x8xf32>, %labels: tensor<4xi64>, %g: tensor<4xf32>, %v: tensor<129x7xf32>) -> (tensor<4xf32>, tensor<4x7xf32>, tensor<7x4xf32>) {
  %0 = nn.einsum "bh,ch->bc" %x, %w : tensor<4x8xf32>, tensor<129x8xf32> -> tensor<4x129xf32>
  %loss, %lse = nn.cross_entropy %0, %labels ignore_index = -100 : (tensor<4x129xf32>, tensor<4xi64>) -> (tensor<4xf32>, tensor<4xf32>)
  %1 = nn.cross_entropy_grad %g, %0, %labels, %lse ignore_index = -100 : (tensor<4xf32>, tensor<4x129xf32>, tensor<4xi64>, tensor<4xf32>) -> tensor<4x129xf32>
  %2 = nn.einsum "bc,ck->bk" %1, %v : tensor<4x129xf32>, tensor<129x7xf32> -> tensor<4x7xf32>
  %3 = nn.einsum "bc,ck->kb" %1, %v : tensor<4x129xf32>, tensor<129x7xf32> -> tensor<7x4xf32>
  return %loss, %2, %3 : tensor<4xf32>, tensor<4x7xf32>, tensor<7x4xf32>
}

// Products of two cotangents, and products that are scalars: no padding.
// CHECK-LABEL: func @negative_cotangents
// CHECK-NOT:     nn.pad
func.func @negative_cotangents(%x: tensor<4x8xf32>, %w: tensor<129x8xf32>, %labels: tensor<4xi64>, %g: tensor<4xf32>, %h: tensor<4xf32>) -> (tensor<4xf32>, tensor<129x129xf32>, tensor<f32>) {
  %0 = nn.einsum "bh,ch->bc" %x, %w : tensor<4x8xf32>, tensor<129x8xf32> -> tensor<4x129xf32>
  %loss, %lse = nn.cross_entropy %0, %labels ignore_index = -100 : (tensor<4x129xf32>, tensor<4xi64>) -> (tensor<4xf32>, tensor<4xf32>)
  %1 = nn.cross_entropy_grad %g, %0, %labels, %lse ignore_index = -100 : (tensor<4xf32>, tensor<4x129xf32>, tensor<4xi64>, tensor<4xf32>) -> tensor<4x129xf32>
  %2 = nn.cross_entropy_grad %h, %0, %labels, %lse ignore_index = -100 : (tensor<4xf32>, tensor<4x129xf32>, tensor<4xi64>, tensor<4xf32>) -> tensor<4x129xf32>
  %3 = nn.einsum "bc,bd->cd" %1, %2 : tensor<4x129xf32>, tensor<4x129xf32> -> tensor<129x129xf32>
  %4 = nn.einsum "b,b->" %g, %h : tensor<4xf32>, tensor<4xf32> -> tensor<f32>
  return %loss, %3, %4 : tensor<4xf32>, tensor<129x129xf32>, tensor<f32>
}
