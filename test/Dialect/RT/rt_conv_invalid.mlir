// RUN: cleave-opt %s -split-input-file -verify-diagnostics

// K1
func.func @other_rank(%x: tensor<2x3x8xf32>, %w: tensor<4x3x3x1xf32>) {
  // expected-error @below {{'rt.conv' op has input 'tensor<2x3x8xf32>', filter 'tensor<4x3x3x1xf32>' and output 'tensor<2x4x8xf32>', expected one element type and one rank, 3 to 5}}
  %0 = rt.conv forward %x, %w strides = [1] dilations = [1] low = [1] high = [1] groups = 1
    : (tensor<2x3x8xf32>, tensor<4x3x3x1xf32>) -> tensor<2x4x8xf32>
  return
}

// -----

// K1
func.func @scratch_of_floats(%x: tensor<2x3x8xf32>, %w: tensor<4x3x3xf32>) {
  // expected-error @below {{'rt.conv' op has 2 results, expected 1 and perhaps scratch memory of i8}}
  %0:2 = rt.conv forward %x, %w strides = [1] dilations = [1] low = [1] high = [1] groups = 1
    : (tensor<2x3x8xf32>, tensor<4x3x3xf32>) -> (tensor<2x4x8xf32>, tensor<64xf32>)
  return
}

// -----

// K2
func.func @no_stride(%x: tensor<2x3x8xf32>, %w: tensor<4x3x3xf32>) {
  // expected-error @below {{'rt.conv' op strides are [0], expected 1 numbers, at least 1}}
  %0 = rt.conv forward %x, %w strides = [0] dilations = [1] low = [1] high = [1] groups = 1
    : (tensor<2x3x8xf32>, tensor<4x3x3xf32>) -> tensor<2x4x8xf32>
  return
}

// -----

// K3
func.func @groups_and_channels(%dy: tensor<2x4x8xf32>, %w: tensor<4x3x3xf32>) {
  // expected-error @below {{'rt.conv' op has 2 groups for input 'tensor<2x3x8xf32>', filter 'tensor<4x3x3xf32>' and output 'tensor<2x4x8xf32>'}}
  %0 = rt.conv input_grad %dy, %w strides = [1] dilations = [1] low = [1] high = [1] groups = 2
    : (tensor<2x4x8xf32>, tensor<4x3x3xf32>) -> tensor<2x3x8xf32>
  return
}

// -----

// K4
func.func @windows(%dy: tensor<2x4x8xf32>, %x: tensor<2x3x8xf32>) {
  // expected-error @below {{'rt.conv' op spatial dimension 0 of the output is 8, expected 7 windows, at least one}}
  %0 = rt.conv filter_grad %dy, %x strides = [1] dilations = [1] low = [1] high = [0] groups = 1
    : (tensor<2x4x8xf32>, tensor<2x3x8xf32>) -> tensor<4x3x3xf32>
  return
}

// -----

// K5
func.func @narrow_bf16(%x: tensor<2x3x8xbf16>, %w: tensor<4x3x3xbf16>) {
  // expected-error @below {{'rt.conv' op is narrow in 'bf16', expected 'f32'}}
  %0 = rt.conv forward %x, %w strides = [1] dilations = [1] low = [1] high = [1] groups = 1 {narrow}
    : (tensor<2x3x8xbf16>, tensor<4x3x3xbf16>) -> tensor<2x4x8xbf16>
  return
}
