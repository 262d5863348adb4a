// RUN: cleave-opt %s -split-input-file -verify-diagnostics

// A code such as RP1 names the documented verifier rule that the case below violates.

func.func private @body(%h: tensor<3xf32>) -> tensor<3xf32> attributes {rt.body} {
  return %h : tensor<3xf32>
}

// RP1
func.func @trips(%pair: tensor<2x3xf32>) {
  // expected-error @below {{attribute 'trips' failed to satisfy constraint}}
  %0 = rt.repeat @body trips = 0 pairs(%pair) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func private @body(%h: tensor<3xf32>) -> tensor<3xf32> attributes {rt.body} {
  return %h : tensor<3xf32>
}

// RP2
func.func @pair(%pair: tensor<3x3xf32>) {
  // expected-error @below {{has a pair of type 'tensor<3x3xf32>', expected dimension 0 to have 2 elements}}
  %0 = rt.repeat @body trips = 4 pairs(%pair) : (tensor<3x3xf32>) -> tensor<3x3xf32>
  return
}

// -----

func.func private @body(%x: tensor<3xf32>) attributes {rt.body} {
  return
}

// RP2
func.func @slice(%x: tensor<5x3xf32>) {
  // expected-error @below {{has a slice of type 'tensor<5x3xf32>', expected dimension 0 to have 4 elements}}
  rt.repeat @body trips = 4 slices(%x) : (tensor<5x3xf32>) -> ()
  return
}

// -----

func.func private @body(%h: tensor<3xf32>) -> tensor<3xf32> attributes {rt.body} {
  return %h : tensor<3xf32>
}

// RP2
func.func @stacked(%x: tensor<3xf32>) {
  // expected-error @below {{has a stacked result of type 'tensor<5x3xf32>', expected dimension 0 to have 4 elements}}
  %0 = rt.repeat @body trips = 4 captures(%x) : (tensor<3xf32>) -> tensor<5x3xf32>
  return
}

// -----

func.func private @body(%h: tensor<3xf32>) -> tensor<3xf32> {
  return %h : tensor<3xf32>
}

// RP3
func.func @no_body(%pair: tensor<2x3xf32>) {
  // expected-error @below {{body @body is not a function with rt.body}}
  %0 = rt.repeat @body trips = 4 pairs(%pair) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func private @body(%h: tensor<3xf32>) -> tensor<3xf32> attributes {rt.body} {
  return %h : tensor<3xf32>
}

// RP3
func.func @types(%pair: tensor<2x4xf32>) {
  // expected-error @below {{operands and results of a trip do not have the types of @body}}
  %0 = rt.repeat @body trips = 4 pairs(%pair) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return
}

// -----

func.func private @body(%h: tensor<3xf32>) -> tensor<3xf32> attributes {rt.body} {
  return %h : tensor<3xf32>
}

// RP3
func.func @in_place(%pair: tensor<2x3xf32>) {
  // expected-error @below {{updates a pair of type 'tensor<2x3xf32>' in place, but the result has type 'tensor<2x4xf32>'}}
  %0 = rt.repeat @body trips = 4 pairs(%pair) : (tensor<2x3xf32>) -> tensor<2x4xf32>
  return
}

// -----

func.func private @body(%h: tensor<3xf32>) -> tensor<3xf32> attributes {rt.body} {
  return %h : tensor<3xf32>
}

// RP4
func.func @scratch(%pair: tensor<2x3xf32>) {
  // expected-error @below {{has scratch memory of type 'tensor<64xf32>', expected a tensor of i8}}
  %0:2 = rt.repeat @body trips = 4 pairs(%pair) has_scratch : (tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<64xf32>)
  return
}

// -----

// expected-error @below {{#rt.address has 2 numbers for trips, expected triples (depth, period, bytes)}}
#address = #rt.address<1, 64, trips = [0, 2]>

// -----

// expected-error @below {{#rt.address depends on trips of depth -1 with period 0; expected a depth that is not negative and a positive period}}
#address = #rt.address<1, 64, trips = [-1, 0, 8]>

// -----

// RP5
func.func private @body(%h: tensor<3xf32>) -> tensor<3xf32> attributes {rt.body} {
  %0 = rt.copy %h [0, 1] to [3, 1] shape = [3] : (tensor<3xf32>) -> tensor<2x3xf32>
  // expected-error @below {{is run by its own body @body}}
  %1 = rt.repeat @body trips = 4 pairs(%0) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %h : tensor<3xf32>
}
