// RUN: cleave-opt %s --nn-select-library=device=cuda | FileCheck %s
// RUN: cleave-opt %s --nn-select-library | FileCheck %s --check-prefix=CPU
// RUN: not cleave-opt %s --nn-select-library=device=tpu 2>&1 | FileCheck %s --check-prefix=NONE

// NONE: Cannot find option named 'tpu'

// The convolution and its two gradients are commands on devices; on CPUs they
// are products of slices.

// CHECK-LABEL: func @three
// CHECK:         rt.conv forward %{{.*}}, %{{.*}} strides = [2] dilations = [1] low = [1] high = [0] groups = 3
// CHECK-SAME:      (tensor<2x3x8xbf16>, tensor<6x1x3xbf16>) -> tensor<2x6x4xbf16>
// CHECK:         rt.conv input_grad %{{.*}}, %{{.*}} strides = [2] dilations = [1] low = [1] high = [0] groups = 3
// CHECK-SAME:      (tensor<2x6x4xbf16>, tensor<6x1x3xbf16>) -> tensor<2x3x8xbf16>
// CHECK:         rt.conv filter_grad %{{.*}}, %{{.*}} strides = [2] dilations = [1] low = [1] high = [0] groups = 3
// CHECK-SAME:      (tensor<2x6x4xbf16>, tensor<2x3x8xbf16>) -> tensor<6x1x3xbf16>
// CHECK-NOT:     rt.gemm

// CPU-LABEL:   func @three
// CPU-NOT:       rt.conv
// CPU-COUNT-3:   rt.gemm
func.func @three(%x: tensor<2x3x8xbf16>, %w: tensor<6x1x3xbf16>)
    -> (tensor<2x3x8xbf16>, tensor<6x1x3xbf16>) {
  %y = nn.conv %x, %w strides = [2] dilations = [1] low = [1] high = [0] groups = 3
    : tensor<2x3x8xbf16>, tensor<6x1x3xbf16> -> tensor<2x6x4xbf16>
  %dx = nn.conv_input_grad %y, %w strides = [2] dilations = [1] low = [1] high = [0] groups = 3
    : tensor<2x6x4xbf16>, tensor<6x1x3xbf16> -> tensor<2x3x8xbf16>
  %dw = nn.conv_filter_grad %y, %x strides = [2] dilations = [1] low = [1] high = [0] groups = 3
    : tensor<2x6x4xbf16>, tensor<2x3x8xbf16> -> tensor<6x1x3xbf16>
  return %dx, %dw : tensor<2x3x8xbf16>, tensor<6x1x3xbf16>
}

// Mixed precision: a convolution of widened bf16 operands whose result is rounded
// runs in bf16. If the result stays wide, `narrow` records that the operands are bf16.

// CHECK-LABEL: func @mixed
// CHECK-SAME:      (%[[X:.+]]: tensor<2x3x8xbf16>, %[[W:.+]]: tensor<4x3x3xbf16>, %[[F:.+]]: tensor<2x3x8xf32>)
// CHECK:         %[[XW:.+]] = arith.extf %[[X]]
// CHECK:         %[[Y:.+]] = rt.conv forward %[[X]], %[[W]] {{.*}} -> tensor<2x4x8xbf16>
// CHECK:         %[[YW:.+]] = arith.extf %[[Y]]
// CHECK:         rt.conv filter_grad %[[YW]], %[[XW]] {{.*}} groups = 1 {narrow} : {{.*}} -> tensor<4x3x3xf32>
// CHECK:         rt.conv forward %[[F]], %{{.+}} groups = 1 : (tensor<2x3x8xf32>, tensor<4x3x3xf32>) -> tensor<2x4x8xf32>
func.func @mixed(%x: tensor<2x3x8xbf16>, %w: tensor<4x3x3xbf16>, %f: tensor<2x3x8xf32>)
    -> (tensor<2x4x8xbf16>, tensor<4x3x3xf32>, tensor<2x4x8xbf16>) {
  %0 = arith.extf %x : tensor<2x3x8xbf16> to tensor<2x3x8xf32>
  %1 = arith.extf %w : tensor<4x3x3xbf16> to tensor<4x3x3xf32>
  %2 = nn.conv %0, %1 strides = [1] dilations = [1] low = [1] high = [1] groups = 1
    : tensor<2x3x8xf32>, tensor<4x3x3xf32> -> tensor<2x4x8xf32>
  %3 = arith.truncf %2 : tensor<2x4x8xf32> to tensor<2x4x8xbf16>
  %4 = arith.extf %3 : tensor<2x4x8xbf16> to tensor<2x4x8xf32>
  %5 = nn.conv_filter_grad %4, %0 strides = [1] dilations = [1] low = [1] high = [1] groups = 1
    : tensor<2x4x8xf32>, tensor<2x3x8xf32> -> tensor<4x3x3xf32>
  %6 = nn.conv %f, %1 strides = [1] dilations = [1] low = [1] high = [1] groups = 1
    : tensor<2x3x8xf32>, tensor<4x3x3xf32> -> tensor<2x4x8xf32>
  %7 = arith.truncf %6 : tensor<2x4x8xf32> to tensor<2x4x8xbf16>
  return %3, %5, %7 : tensor<2x4x8xbf16>, tensor<4x3x3xf32>, tensor<2x4x8xbf16>
}

// f64 and three spatial dimensions.

// CHECK-LABEL: func @volume
// CHECK:         rt.conv forward {{.*}} -> tensor<1x2x3x3x3xf64>
func.func @volume(%x: tensor<1x4x5x5x5xf64>, %w: tensor<2x4x3x3x3xf64>) -> tensor<1x2x3x3x3xf64> {
  %y = nn.conv %x, %w strides = [1, 1, 1] dilations = [1, 1, 1] low = [0, 0, 0] high = [0, 0, 0] groups = 1
    : tensor<1x4x5x5x5xf64>, tensor<2x4x3x3x3xf64> -> tensor<1x2x3x3x3xf64>
  return %y : tensor<1x2x3x3x3xf64>
}

// Convolutions without a command stay products: four spatial dimensions, indices beyond 31 bits.

// CHECK-LABEL: func @four
// CHECK-NOT:     rt.conv
// CHECK:         rt.gemm
func.func @four(%x: tensor<1x4x5x5x5x5xf32>, %w: tensor<2x4x1x1x1x1xf32>) -> tensor<1x2x5x5x5x5xf32> {
  %y = nn.conv %x, %w strides = [1, 1, 1, 1] dilations = [1, 1, 1, 1] low = [0, 0, 0, 0] high = [0, 0, 0, 0] groups = 1
    : tensor<1x4x5x5x5x5xf32>, tensor<2x4x1x1x1x1xf32> -> tensor<1x2x5x5x5x5xf32>
  return %y : tensor<1x2x5x5x5x5xf32>
}

// CHECK-LABEL: func @huge
// CHECK-NOT:     rt.conv
func.func @huge(%x: tensor<65536x4x32768xf32>, %w: tensor<2x4x1xf32>) -> tensor<65536x2x32768xf32> {
  %y = nn.conv %x, %w strides = [1] dilations = [1] low = [0] high = [0] groups = 1
    : tensor<65536x4x32768xf32>, tensor<2x4x1xf32> -> tensor<65536x2x32768xf32>
  return %y : tensor<65536x2x32768xf32>
}
