// RUN: cleave-opt %s -split-input-file -verify-diagnostics

// A code such as C1 names the documented verifier rule that the case below violates.

// C1
func.func @rank(%x: tensor<2x3xf32>, %w: tensor<4x3xf32>) {
  // expected-error @below {{has an input of rank 2, a filter of rank 2 and a result of rank 2, expected one rank, at least 3}}
  %0 = nn.conv %x, %w strides = [] dilations = [] low = [] high = [] groups = 1 : tensor<2x3xf32>, tensor<4x3xf32> -> tensor<2x4xf32>
  return
}

// -----

// C1
func.func @entries(%x: tensor<2x3x8xf32>, %w: tensor<4x3x3xf32>) {
  // expected-error @below {{strides has 2 entries, expected 1, one for each spatial dimension}}
  %0 = nn.conv %x, %w strides = [1, 1] dilations = [1] low = [0] high = [0] groups = 1 : tensor<2x3x8xf32>, tensor<4x3x3xf32> -> tensor<2x4x6xf32>
  return
}

// -----

// C1
func.func @positive(%x: tensor<2x3x8xf32>, %w: tensor<4x3x3xf32>) {
  // expected-error @below {{strides has 0, expected at least 1}}
  %0 = nn.conv %x, %w strides = [0] dilations = [1] low = [0] high = [0] groups = 1 : tensor<2x3x8xf32>, tensor<4x3x3xf32> -> tensor<2x4x6xf32>
  return
}

// -----

// C2
func.func @groups(%x: tensor<2x3x8xf32>, %w: tensor<4x3x3xf32>) {
  // expected-error @below {{has 2 groups for 3 channels, 4 features and a filter of 3 channels}}
  %0 = nn.conv %x, %w strides = [1] dilations = [1] low = [0] high = [0] groups = 2 : tensor<2x3x8xf32>, tensor<4x3x3xf32> -> tensor<2x4x6xf32>
  return
}

// -----

// C3
func.func @size(%x: tensor<2x3x8xf32>, %w: tensor<4x3x3xf32>) {
  // expected-error @below {{spatial dimension 0 has 5 windows, expected 6}}
  %0 = nn.conv %x, %w strides = [1] dilations = [1] low = [0] high = [0] groups = 1 : tensor<2x3x8xf32>, tensor<4x3x3xf32> -> tensor<2x4x5xf32>
  return
}

// -----

// C3
func.func @room(%x: tensor<2x3x2xf32>, %w: tensor<4x3x3xf32>) {
  // expected-error @below {{spatial dimension 0 of size 2 has no room for a window that reaches over 3 elements}}
  %0 = nn.conv %x, %w strides = [1] dilations = [1] low = [0] high = [0] groups = 1 : tensor<2x3x2xf32>, tensor<4x3x3xf32> -> tensor<2x4x1xf32>
  return
}

// -----

// P3
func.func @between(%x: tensor<2x3x1xf32>) {
  // expected-error @below {{has window 0 of spatial dimension 0 between the elements of the input; expected each window to have one}}
  %0 = nn.pool max %x window = [2] strides = [1] dilations = [2] low = [1] high = [1] : tensor<2x3x1xf32> -> tensor<2x3x1xf32>
  return
}

// -----

// P3
func.func @padding(%x: tensor<2x3x8xf32>) {
  // expected-error @below {{pads spatial dimension 0 by 2 and 0, expected at most 1, so that each window has an element}}
  %0 = nn.pool max %x window = [2] strides = [2] dilations = [1] low = [2] high = [0] : tensor<2x3x8xf32> -> tensor<2x3x5xf32>
  return
}

// -----

// T1
func.func @many(%x: tensor<2x3xf32>) {
  // expected-error @below {{takes 4 of 'tensor<2x3xf32>', expected at least 1 and at most the last dimension}}
  %0, %1 = nn.top_k %x k = 4 : tensor<2x3xf32> -> tensor<2x4xf32>, tensor<2x4xi64>
  return
}

// -----

// T2
func.func @shape(%x: tensor<2x3xf32>) {
  // expected-error @below {{has results 'tensor<2x2xf32>' and 'tensor<2x3xi64>', expected the shape of 'tensor<2x2xf32>'}}
  %0, %1 = nn.top_k %x k = 2 : tensor<2x3xf32> -> tensor<2x2xf32>, tensor<2x3xi64>
  return
}

// -----

// P1
func.func @too_far(%x: tensor<2x3x8xf32>) {
  // expected-error @below {{dilations has 16777217, expected at least 1 and at most 16777216}}
  %0 = nn.pool max %x window = [2] strides = [1] dilations = [16777217] low = [0] high = [0] : tensor<2x3x8xf32> -> tensor<2x3x8xf32>
  return
}
