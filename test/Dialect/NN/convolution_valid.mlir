// RUN: cleave-opt %s | cleave-opt | FileCheck %s

// CHECK-LABEL: func @conv
func.func @conv(%x: tensor<2x4x8x9xf32>, %w: tensor<6x2x3x2xf32>) {
  // CHECK: %[[Y:.*]] = nn.conv %{{.*}}, %{{.*}} strides = [2, 1] dilations = [1, 2] low = [1, 0] high = [1, 0] groups = 2 : tensor<2x4x8x9xf32>, tensor<6x2x3x2xf32> -> tensor<2x6x4x7xf32>
  %y = nn.conv %x, %w strides = [2, 1] dilations = [1, 2] low = [1, 0] high = [1, 0] groups = 2 : tensor<2x4x8x9xf32>, tensor<6x2x3x2xf32> -> tensor<2x6x4x7xf32>
  // CHECK: nn.conv_input_grad %[[Y]], %{{.*}} strides = [2, 1] dilations = [1, 2] low = [1, 0] high = [1, 0] groups = 2 : tensor<2x6x4x7xf32>, tensor<6x2x3x2xf32> -> tensor<2x4x8x9xf32>
  %dx = nn.conv_input_grad %y, %w strides = [2, 1] dilations = [1, 2] low = [1, 0] high = [1, 0] groups = 2 : tensor<2x6x4x7xf32>, tensor<6x2x3x2xf32> -> tensor<2x4x8x9xf32>
  // CHECK: nn.conv_filter_grad %[[Y]], %{{.*}} strides = [2, 1] dilations = [1, 2] low = [1, 0] high = [1, 0] groups = 2 : tensor<2x6x4x7xf32>, tensor<2x4x8x9xf32> -> tensor<6x2x3x2xf32>
  %dw = nn.conv_filter_grad %y, %x strides = [2, 1] dilations = [1, 2] low = [1, 0] high = [1, 0] groups = 2 : tensor<2x6x4x7xf32>, tensor<2x4x8x9xf32> -> tensor<6x2x3x2xf32>
  return
}

// CHECK-LABEL: func @pool
func.func @pool(%x: tensor<2x3x8xf32>) -> tensor<2x3x8xf32> {
  // CHECK: nn.pool max %{{.*}} window = [3] strides = [2] dilations = [1] low = [1] high = [0] : tensor<2x3x8xf32> -> tensor<2x3x4xf32>
  %y = nn.pool max %x window = [3] strides = [2] dilations = [1] low = [1] high = [0] : tensor<2x3x8xf32> -> tensor<2x3x4xf32>
  // CHECK: nn.pool_grad sum %{{.*}}, %{{.*}} window = [3] strides = [2] dilations = [1] low = [1] high = [0] : tensor<2x3x4xf32>, tensor<2x3x8xf32> -> tensor<2x3x8xf32>
  %dx = nn.pool_grad sum %y, %x window = [3] strides = [2] dilations = [1] low = [1] high = [0] : tensor<2x3x4xf32>, tensor<2x3x8xf32> -> tensor<2x3x8xf32>
  return %dx : tensor<2x3x8xf32>
}

// CHECK-LABEL: func @top_k
func.func @top_k(%x: tensor<4x6xf32>) -> tensor<4x2xi64> {
  // CHECK: nn.top_k %{{.*}} k = 2 : tensor<4x6xf32> -> tensor<4x2xf32>, tensor<4x2xi64>
  %v, %i = nn.top_k %x k = 2 : tensor<4x6xf32> -> tensor<4x2xf32>, tensor<4x2xi64>
  return %i : tensor<4x2xi64>
}

// The only window covers the element with its second position; one more position would cover none.
// CHECK-LABEL: func.func @gap
func.func @gap(%x: tensor<2x3x1xf32>) -> tensor<2x3x1xf32> {
  // CHECK: nn.pool max %{{.*}} window = [2] strides = [1] dilations = [2] low = [2] high = [0]
  %y = nn.pool max %x window = [2] strides = [1] dilations = [2] low = [2] high = [0] : tensor<2x3x1xf32> -> tensor<2x3x1xf32>
  return %y : tensor<2x3x1xf32>
}
