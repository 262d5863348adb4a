// RUN: cleave-opt %s --rt-plan-memory -split-input-file -verify-diagnostics

// expected-error @below {{'func.func' op argument 0 is not a tensor with nn.name and nn.role}}
func.func @unnamed(%x: tensor<8xf32>) {
  return
}

// -----

func.func @f(%x: tensor<8xf32> {nn.name = "x", nn.role = #nn.role<input>}) {
  return
}
// expected-error @below {{'func.func' op argument 0 'x' has type 'tensor<4xf32>', but elsewhere it has 'tensor<8xf32>'}}
func.func @g(%x: tensor<4xf32> {nn.name = "x", nn.role = #nn.role<input>}) {
  return
}

// -----

func.func @no_command(%x: tensor<8xf32> {nn.name = "x", nn.role = #nn.role<input>}) -> (tensor<8xf32> {nn.name = "y", nn.role = #nn.role<output>}) {
  // expected-error @below {{'arith.addf' op is no command, so its memory cannot be planned}}
  %0 = arith.addf %x, %x : tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

// expected-error @below {{'func.func' op result 1 has the name and role of another result}}
func.func @twice(%x: tensor<8xf32> {nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<8xf32> {nn.name = "y", nn.role = #nn.role<output>}, tensor<8xf32> {nn.name = "y", nn.role = #nn.role<output>}) {
  return %x, %x : tensor<8xf32>, tensor<8xf32>
}

// -----

func.func private @body(%h: tensor<3xf32> {nn.name = "0", nn.role = #nn.role<input>})
    -> (tensor<3xf32> {nn.name = "0", nn.role = #nn.role<output>}) attributes {rt.body} {
  return %h : tensor<3xf32>
}
func.func @two_loops(%h: tensor<2x3xf32> {nn.name = "h", nn.role = #nn.role<input>}) -> (tensor<2x3xf32> {nn.name = "y", nn.role = #nn.role<output>}) {
  %0 = rt.repeat @body trips = 4 pairs(%h) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  // expected-error @below {{runs @body, which another command runs too}}
  %1 = rt.repeat @body trips = 4 pairs(%0) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %1 : tensor<2x3xf32>
}
