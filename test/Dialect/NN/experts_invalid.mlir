// RUN: cleave-opt %s -split-input-file -verify-diagnostics

// A code such as C1 names the documented verifier rule that the case below violates.

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

// -----

// PE1
func.func @choices_without_positions(%ids: tensor<5xi64>, %s: tensor<5xi64>) {
  // expected-error @below {{'nn.position_in_expert' op ids have sizes [5], expected [b, s, k], or [b, s] of one slot each}}
  %0 = nn.position_in_expert %ids, %s experts = 4 : (tensor<5xi64>, tensor<5xi64>) -> tensor<5xi64>
  return
}

// -----

// PE1
func.func @positions_of_others(%ids: tensor<2x5x3xi64>, %s: tensor<2x3xi64>) {
  // expected-error @below {{'nn.position_in_expert' op positions have sizes [2, 3], expected [2, 5]}}
  %0 = nn.position_in_expert %ids, %s experts = 4 : (tensor<2x5x3xi64>, tensor<2x3xi64>) -> tensor<2x5x3xi64>
  return
}

// -----

// PE1
func.func @loads_of_other_experts(%ids: tensor<2x5xi64>, %s: tensor<5xi64>, %loads: tensor<2x3xi64>, %samples: tensor<2xi64>) {
  // expected-error @below {{'nn.position_in_expert' op loads have sizes [2, 3], expected [n, 4]}}
  %0 = nn.position_in_expert %ids, %s after(%loads, %samples) experts = 4 : (tensor<2x5xi64>, tensor<5xi64>, tensor<2x3xi64>, tensor<2xi64>) -> tensor<2x5xi64>
  return
}

// -----

// PE1
func.func @other_samples(%ids: tensor<2x5xi64>, %s: tensor<5xi64>, %loads: tensor<3x4xi64>, %samples: tensor<3xi64>) {
  // expected-error @below {{'nn.position_in_expert' op samples have sizes [3], expected [2]}}
  %0 = nn.position_in_expert %ids, %s after(%loads, %samples) experts = 4 : (tensor<2x5xi64>, tensor<5xi64>, tensor<3x4xi64>, tensor<3xi64>) -> tensor<2x5xi64>
  return
}

// -----

// PE2
func.func @loads_alone(%ids: tensor<2x5xi64>, %s: tensor<5xi64>, %loads: tensor<3x4xi64>) {
  // expected-error @below {{'nn.position_in_expert' op has only one of loads and samples}}
  %0 = "nn.position_in_expert"(%ids, %s, %loads) {experts = 4 : i64, operandSegmentSizes = array<i32: 1, 1, 1, 0>} : (tensor<2x5xi64>, tensor<5xi64>, tensor<3x4xi64>) -> tensor<2x5xi64>
  return
}
