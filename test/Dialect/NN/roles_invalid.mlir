// RUN: cleave-opt %s -split-input-file -verify-diagnostics

// Roles are attributes; the error for a string gives the attribute's spelling.

// expected-error @below {{'nn.role' is the string "parameter"; expected #nn.role<parameter>}}
func.func @argument(%w: tensor<4xf32> {nn.name = "w", nn.role = "parameter"}) {
  return
}

// -----

// expected-error @below {{'nn.role' is the string "weights"; expected #nn.role<...> with one of parameter, buffer, constant,}}
func.func @unknown(%w: tensor<4xf32> {nn.name = "w", nn.role = "weights"}) {
  return
}

// -----

// expected-error @below {{'nn.role' is the string "output"; expected #nn.role<output>}}
func.func @result(%x: tensor<4xf32>) -> (tensor<4xf32> {nn.name = "y", nn.role = "output"}) {
  return %x : tensor<4xf32>
}

// -----

// expected-error @below {{'nn.role' is the string "input"; expected #nn.role<input>}}
func.func private @declared(tensor<4xf32> {nn.name = "x", nn.role = "input"})

// -----

// expected-error @below {{'nn.role' is 3 : i64; expected #nn.role<...> with one of parameter,}}
func.func @number(%w: tensor<4xf32> {nn.name = "w", nn.role = 3}) {
  return
}

// -----

// expected-error @below {{unknown role 'weights'; expected one of parameter, buffer, constant, state, count, gradient, tokens, labels, sample_ids, input, activation, cotangent, residual, seed, step, microbatch, lr, loss, weight, accumulator, metric, output, tap}}
func.func @spelling(%w: tensor<4xf32> {nn.name = "w", nn.role = #nn.role<weights>}) {
  return
}

// -----

func.func @operation(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{'nn.role' stands on an operation; expected it on arguments and results of functions}}
  %0 = nn.reshape %x {nn.role = #nn.role<input>} : tensor<4xf32> -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
