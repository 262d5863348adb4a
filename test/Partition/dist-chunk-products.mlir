// RUN: cleave-opt %s -split-input-file -dist-chunk-products | FileCheck %s

// In the default cluster's cost model the product takes 86 ms and the sum of 8.4 MB
// 0.86 ms: four pieces overlap most of the communication.
dist.mesh @m <["t"=2]>

// CHECK-LABEL: func @sum(
// CHECK-SAME:    %[[X:[^:]+]]: tensor<4x512x1024xf32>
// CHECK:         %[[X0:.+]] = nn.slice %[[X]] [0, 0, 0] [1, 512, 1024]
// CHECK-NEXT:    %[[Y0:.+]] = nn.einsum "bsh,hf->bsf" %[[X0]], %{{.+}} : tensor<1x512x1024xf32>
// CHECK-NEXT:    nn.slice %[[X]] [1, 0, 0]
// CHECK:         nn.slice %[[X]] [3, 0, 0]
// CHECK-NEXT:    %[[Y3:.+]] = nn.einsum
// CHECK-NEXT:    %[[S0:.+]] = dist.all_reduce {{ *}}sum %[[Y0]] over @m {"t"} purpose {{ *}}activation : tensor<1x512x1024xf32>
// CHECK:         %[[S3:.+]] = dist.all_reduce {{ *}}sum %[[Y3]]
// CHECK-NEXT:    %[[S:.+]] = nn.concat %[[S0]], %{{.+}}, %{{.+}}, %[[S3]] dim = 0
// CHECK-NEXT:    nn.sigmoid %[[S]]
func.func @sum(%x: tensor<4x512x1024xf32>, %w: tensor<1024x1024xf32>) -> tensor<4x512x1024xf32> {
  %0 = nn.einsum "bsh,hf->bsf" %x, %w : tensor<4x512x1024xf32>, tensor<1024x1024xf32> -> tensor<4x512x1024xf32>
  %1 = dist.all_reduce sum %0 over @m {"t"} purpose activation : tensor<4x512x1024xf32>
  %2 = nn.sigmoid %1 : tensor<4x512x1024xf32>
  return %2 : tensor<4x512x1024xf32>
}

// Two products alternate between the pieces of the gathered operand.
// CHECK-LABEL: func @gather(
// CHECK:         %[[G0:.+]] = dist.all_gather %{{.+}} dims [1] over @m {"t"} purpose {{ *}}activation : (tensor<1x256x1024xf32>) -> tensor<1x512x1024xf32>
// CHECK:         %[[G1:.+]] = dist.all_gather
// CHECK-NEXT:    %[[P0:.+]] = nn.einsum "bsh,hf->bsf" %[[G0]], %[[W:arg[0-9]]]
// CHECK-NEXT:    %[[Q0:.+]] = nn.einsum "bsh,hf->bsf" %[[G0]], %[[V:arg[0-9]]]
// CHECK-NEXT:    %[[P1:.+]] = nn.einsum "bsh,hf->bsf" %[[G1]], %[[W]]
// CHECK-NEXT:    %[[Q1:.+]] = nn.einsum "bsh,hf->bsf" %[[G1]], %[[V]]
// CHECK-NEXT:    nn.concat %[[P0]], %[[P1]] dim = 0
// CHECK-NEXT:    nn.concat %[[Q0]], %[[Q1]] dim = 0
// CHECK-NEXT:    arith.mulf
func.func @gather(%x: tensor<2x256x1024xf32>, %w: tensor<1024x1024xf32>, %v: tensor<1024x1024xf32>) -> tensor<2x512x1024xf32> {
  %0 = dist.all_gather %x dims [1] over @m {"t"} purpose activation : (tensor<2x256x1024xf32>) -> tensor<2x512x1024xf32>
  %1 = nn.einsum "bsh,hf->bsf" %0, %w : tensor<2x512x1024xf32>, tensor<1024x1024xf32> -> tensor<2x512x1024xf32>
  %2 = nn.einsum "bsh,hf->bsf" %0, %v : tensor<2x512x1024xf32>, tensor<1024x1024xf32> -> tensor<2x512x1024xf32>
  %3 = arith.mulf %1, %2 : tensor<2x512x1024xf32>
  return %3 : tensor<2x512x1024xf32>
}

// A reader that sums over the pieces would need the whole operand in addition to them.
// CHECK-LABEL: func @negative_whole(
// CHECK-COUNT-1: dist.all_gather
// CHECK-NOT:     dist.all_gather
// CHECK:         return
func.func @negative_whole(%x: tensor<2x256x1024xf32>, %w: tensor<1024x1024xf32>) -> (tensor<2x512x1024xf32>, tensor<1024x1024xf32>) {
  %0 = dist.all_gather %x dims [1] over @m {"t"} purpose activation : (tensor<2x256x1024xf32>) -> tensor<2x512x1024xf32>
  %1 = nn.einsum "bsh,hf->bsf" %0, %w : tensor<2x512x1024xf32>, tensor<1024x1024xf32> -> tensor<2x512x1024xf32>
  %2 = nn.sigmoid %1 : tensor<2x512x1024xf32>
  %3 = nn.einsum "bsh,bsf->hf" %0, %2 : tensor<2x512x1024xf32>, tensor<2x512x1024xf32> -> tensor<1024x1024xf32>
  return %2, %3 : tensor<2x512x1024xf32>, tensor<1024x1024xf32>
}

// An operand or result whose pieces are not contiguous is not cut.
// CHECK-LABEL: func @negative_strided(
// CHECK:         dist.all_gather
// CHECK-NOT:     dist.all_gather
// CHECK:         return
func.func @negative_strided(%x: tensor<4x256x1024xf32>, %w: tensor<1024x256x4xf32>) -> tensor<512x4x256xf32> {
  %0 = dist.all_gather %x dims [1] over @m {"t"} purpose activation : (tensor<4x256x1024xf32>) -> tensor<4x512x1024xf32>
  %1 = nn.einsum "bsh,hfb->sbf" %0, %w : tensor<4x512x1024xf32>, tensor<1024x256x4xf32> -> tensor<512x4x256xf32>
  %2 = nn.sigmoid %1 : tensor<512x4x256xf32>
  return %2 : tensor<512x4x256xf32>
}

// A product after a view also needs the whole tensor.
// CHECK-LABEL: func @negative_behind_a_view(
// CHECK:         dist.all_gather
// CHECK-NOT:     dist.all_gather
// CHECK:         return
func.func @negative_behind_a_view(%x: tensor<2x256x512xf32>, %w: tensor<512x2048xf32>, %v: tensor<2048x64xf32>) -> tensor<1024x64xf32> {
  %0 = dist.all_gather %x dims [1] over @m {"t"} purpose activation : (tensor<2x256x512xf32>) -> tensor<2x512x512xf32>
  %1 = nn.einsum "bsh,hf->bsf" %0, %w : tensor<2x512x512xf32>, tensor<512x2048xf32> -> tensor<2x512x2048xf32>
  %2 = nn.reshape %1 : tensor<2x512x2048xf32> -> tensor<1024x2048xf32>
  %3 = nn.einsum "bh,hf->bf" %2, %v : tensor<1024x2048xf32>, tensor<2048x64xf32> -> tensor<1024x64xf32>
  return %3 : tensor<1024x64xf32>
}

// A leading dimension of size 1 is skipped; a reduce-scatter along the next dimension is not cut.
// CHECK-LABEL: func @rows(
// CHECK-COUNT-4: dist.all_reduce {{.*}} tensor<1x512x1024xf32>
// CHECK-LABEL: func @negative_rows(
// CHECK:         dist.reduce_scatter {{.*}} (tensor<1x2048x1024xf32>)
func.func @rows(%x: tensor<1x2048x1024xf32>, %w: tensor<1024x1024xf32>) -> tensor<1x2048x1024xf32> {
  %0 = nn.einsum "bsh,hf->bsf" %x, %w : tensor<1x2048x1024xf32>, tensor<1024x1024xf32> -> tensor<1x2048x1024xf32>
  %1 = dist.all_reduce sum %0 over @m {"t"} purpose activation : tensor<1x2048x1024xf32>
  %2 = nn.sigmoid %1 : tensor<1x2048x1024xf32>
  return %2 : tensor<1x2048x1024xf32>
}
func.func @negative_rows(%x: tensor<1x2048x1024xf32>, %w: tensor<1024x1024xf32>) -> tensor<1x1024x1024xf32> {
  %0 = nn.einsum "bsh,hf->bsf" %x, %w : tensor<1x2048x1024xf32>, tensor<1024x1024xf32> -> tensor<1x2048x1024xf32>
  %1 = dist.reduce_scatter sum %0 dims [1] over @m {"t"} purpose activation : (tensor<1x2048x1024xf32>) -> tensor<1x1024x1024xf32>
  %2 = nn.sigmoid %1 : tensor<1x1024x1024xf32>
  return %2 : tensor<1x1024x1024xf32>
}

// The gradient of a matrix is independent compute that already hides the sum.
// CHECK-LABEL: func @negative_spare(
// CHECK:         dist.all_reduce
// CHECK-NOT:     dist.all_reduce
func.func @negative_spare(%dy: tensor<4x512x1024xf32>, %x: tensor<4x512x1024xf32>, %w: tensor<1024x1024xf32>) -> (tensor<4x512x1024xf32>, tensor<1024x1024xf32>) {
  %0 = nn.einsum "bsf,bsh->hf" %dy, %x : tensor<4x512x1024xf32>, tensor<4x512x1024xf32> -> tensor<1024x1024xf32>
  %1 = nn.einsum "bsf,hf->bsh" %dy, %w : tensor<4x512x1024xf32>, tensor<1024x1024xf32> -> tensor<4x512x1024xf32>
  %2 = dist.all_reduce sum %1 over @m {"t"} purpose activation : tensor<4x512x1024xf32>
  return %2, %0 : tensor<4x512x1024xf32>, tensor<1024x1024xf32>
}

// Small pieces cost more latency than they hide. A product with a second reader is
// complete before the sum, so cutting it hides nothing.
// CHECK-LABEL: func @negative_small(
// CHECK:         dist.all_reduce
// CHECK-NOT:     dist.all_reduce
// CHECK-LABEL: func @negative_two_readers(
// CHECK:         dist.all_reduce
// CHECK-NOT:     dist.all_reduce
func.func @negative_small(%x: tensor<4x8x16xf32>, %w: tensor<16x16xf32>) -> tensor<4x8x16xf32> {
  %0 = nn.einsum "bsh,hf->bsf" %x, %w : tensor<4x8x16xf32>, tensor<16x16xf32> -> tensor<4x8x16xf32>
  %1 = dist.all_reduce sum %0 over @m {"t"} purpose activation : tensor<4x8x16xf32>
  return %1 : tensor<4x8x16xf32>
}
func.func @negative_two_readers(%x: tensor<4x512x1024xf32>, %w: tensor<1024x1024xf32>) -> (tensor<4x512x1024xf32>, tensor<4x512x1024xf32>) {
  %0 = nn.einsum "bsh,hf->bsf" %x, %w : tensor<4x512x1024xf32>, tensor<1024x1024xf32> -> tensor<4x512x1024xf32>
  %1 = dist.all_reduce sum %0 over @m {"t"} purpose activation : tensor<4x512x1024xf32>
  return %1, %0 : tensor<4x512x1024xf32>, tensor<4x512x1024xf32>
}
