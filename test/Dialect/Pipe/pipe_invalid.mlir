// RUN: cleave-opt %s -split-input-file -verify-diagnostics

// S1
func.func @none() {
  // expected-error @below {{has no operand, expected at least one}}
  "pipe.sum_stages"() : () -> ()
  return
}

// -----

// S2
func.func @one(%a: tensor<f32>) {
  // expected-error @below {{has 1 stages, expected at least two}}
  %0 = pipe.sum_stages %a {stages = array<i64: 0>} : tensor<f32>
  return
}

// -----

// S2
func.func @order(%a: tensor<f32>) {
  // expected-error @below {{has stage 1 behind 2, expected ascending stages}}
  %0 = pipe.sum_stages %a {stages = array<i64: 2, 1>} : tensor<f32>
  return
}

// -----

// S2
func.func @negative(%a: tensor<f32>) {
  // expected-error @below {{has stage -1, expected none below 0}}
  %0 = pipe.sum_stages %a {stages = array<i64: -1, 1>} : tensor<f32>
  return
}

// -----

// S3
module attributes {pipe.stage = 1 : i64, pipe.stages = 3 : i64} {
  func.func @beyond(%a: tensor<f32>) {
    // expected-error @below {{has stage 3, but the pipeline has 3}}
    %0 = pipe.sum_stages %a {stages = array<i64: 1, 3>} : tensor<f32>
    return
  }
}

// -----

// S3
module attributes {pipe.stage = 1 : i64, pipe.stages = 3 : i64} {
  func.func @outside(%a: tensor<f32>) {
    // expected-error @below {{does not sum over stage 1, in which it stands}}
    %0 = pipe.sum_stages %a {stages = array<i64: 0, 2>} : tensor<f32>
    return
  }
}

// -----

func.func @type(%a: tensor<f32>) {
  // expected-error @below {{inferred type(s) 'tensor<f32>' are incompatible with return type(s) of operation 'tensor<2xf32>'}}
  // expected-error @below {{failed to infer returned types}}
  %0 = "pipe.sum_stages"(%a) : (tensor<f32>) -> tensor<2xf32>
  return
}
