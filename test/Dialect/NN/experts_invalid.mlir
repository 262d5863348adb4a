// RUN: cleave-opt %s -split-input-file -verify-diagnostics

// GD1
func.func @matrices_of_rank_2(%x: tensor<5x6xf32>, %w: tensor<6x8xf32>, %ids: tensor<5xi64>) {
  // expected-error @below {{'nn.grouped_dot' op matrices has rank 2, expected 3: [matrices, rows, columns]}}
  %0 = nn.grouped_dot %x, %w, %ids : tensor<5x6xf32>, tensor<6x8xf32>, tensor<5xi64> -> tensor<5x8xf32>
  return
}

// -----

// GD1
func.func @input_of_other_rows(%x: tensor<5x2x6xf32>, %w: tensor<4x6x8xf32>, %ids: tensor<5xi64>) {
  // expected-error @below {{'nn.grouped_dot' op input has sizes [5, 2, 6], expected [5, 6]}}
  %0 = nn.grouped_dot %x, %w, %ids : tensor<5x2x6xf32>, tensor<4x6x8xf32>, tensor<5xi64> -> tensor<5x8xf32>
  return
}

// -----

// GD1
func.func @transposed_result(%x: tensor<5x8xf32>, %w: tensor<4x6x8xf32>, %ids: tensor<5xi64>) {
  // expected-error @below {{'nn.grouped_dot' op result has sizes [5, 8], expected [5, 6]}}
  %0 = nn.grouped_dot %x, %w, %ids transposed : tensor<5x8xf32>, tensor<4x6x8xf32>, tensor<5xi64> -> tensor<5x8xf32>
  return
}

// -----

// GO1
func.func @outer_of_other_rows(%x: tensor<5x6xf32>, %y: tensor<4x8xf32>, %ids: tensor<5xi64>) {
  // expected-error @below {{'nn.grouped_outer' op right has sizes [4, 8], expected [5, 8]}}
  %0 = nn.grouped_outer %x, %y, %ids : tensor<5x6xf32>, tensor<4x8xf32>, tensor<5xi64> -> tensor<3x6x8xf32>
  return
}
