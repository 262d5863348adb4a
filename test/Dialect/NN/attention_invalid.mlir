// RUN: cleave-opt %s --split-input-file --verify-diagnostics

// A code such as C1 names the documented verifier rule that the case below violates.

// A4
func.func @no_key(%q: tensor<2x5x3x1x4xf32>, %k: tensor<2x7x3x4xf32>) {
  // expected-error @below {{'nn.attention' op has dropout p = 1.000000e-01, expected 0 without its keys}}
  %o, %lse = nn.attention %q, %k, %k scale = 0.5 {dropout = 0.1 : f64}
    : (tensor<2x5x3x1x4xf32>, tensor<2x7x3x4xf32>, tensor<2x7x3x4xf32>) -> (tensor<2x5x3x1x4xf32>, tensor<2x3x1x5xf32>)
  return
}

// -----

// A4
func.func @share(%q: tensor<2x5x3x1x4xf32>, %k: tensor<2x7x3x4xf32>, %keys: tensor<2x3x1xi64>, %qi: tensor<5xi64>, %ki: tensor<7xi64>) {
  // expected-error @below {{'nn.attention' op has dropout p = 1.000000e+00, expected more than 0 and less than 1}}
  %o, %lse = nn.attention %q, %k, %k dropout(%keys, %qi, %ki) p = 1.0 scale = 0.5
    : (tensor<2x5x3x1x4xf32>, tensor<2x7x3x4xf32>, tensor<2x7x3x4xf32>, tensor<2x3x1xi64>, tensor<5xi64>, tensor<7xi64>)
    -> (tensor<2x5x3x1x4xf32>, tensor<2x3x1x5xf32>)
  return
}

// -----

// A4
func.func @some(%q: tensor<2x5x3x1x4xf32>, %k: tensor<2x7x3x4xf32>, %keys: tensor<2x3x1xi64>) {
  // expected-error @below {{'nn.attention' op has only some of dropout's keys, query indices and key indices}}
  %o, %lse = "nn.attention"(%q, %k, %k, %keys) <{dropout = 0.1 : f64, scale = 0.5 : f64, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0>}>
    : (tensor<2x5x3x1x4xf32>, tensor<2x7x3x4xf32>, tensor<2x7x3x4xf32>, tensor<2x3x1xi64>)
    -> (tensor<2x5x3x1x4xf32>, tensor<2x3x1x5xf32>)
  return
}

// -----

// A4
func.func @keys(%q: tensor<2x5x3x1x4xf32>, %k: tensor<2x7x3x4xf32>, %keys: tensor<2x1x3xi64>, %qi: tensor<5xi64>, %ki: tensor<7xi64>) {
  // expected-error @below {{'nn.attention' op dropout's keys have sizes [2, 1, 3], expected [2, 3, 1]}}
  %o, %lse = nn.attention %q, %k, %k dropout(%keys, %qi, %ki) p = 0.1 scale = 0.5
    : (tensor<2x5x3x1x4xf32>, tensor<2x7x3x4xf32>, tensor<2x7x3x4xf32>, tensor<2x1x3xi64>, tensor<5xi64>, tensor<7xi64>)
    -> (tensor<2x5x3x1x4xf32>, tensor<2x3x1x5xf32>)
  return
}

// -----

// A4
func.func @indices(%o: tensor<2x5x3x1x4xf32>, %lse: tensor<2x3x1x5xf32>, %k: tensor<2x7x3x4xf32>, %keys: tensor<2x3x1xi64>, %qi: tensor<5xi64>) {
  // expected-error @below {{'nn.attention_grad' op dropout's key indices have sizes [5], expected [7]}}
  %dq, %dk, %dv = nn.attention_grad %o, %o, %k, %k, %o, %lse dropout(%keys, %qi, %qi) p = 0.1 scale = 0.5
    : (tensor<2x5x3x1x4xf32>, tensor<2x5x3x1x4xf32>, tensor<2x7x3x4xf32>, tensor<2x7x3x4xf32>, tensor<2x5x3x1x4xf32>, tensor<2x3x1x5xf32>, tensor<2x3x1xi64>, tensor<5xi64>, tensor<5xi64>)
    -> (tensor<2x5x3x1x4xf32>, tensor<2x7x3x4xf32>, tensor<2x7x3x4xf32>)
  return
}
