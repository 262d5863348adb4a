// RUN: cleave-opt %s -split-input-file -verify-diagnostics

// A code such as C1 names the documented verifier rule that the case below violates.

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
  // expected-error @below {{has stage 1 after 2, expected ascending stages}}
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

// -----

// expected-error @below {{'pipe.slot' is "F:W"; expected #pipe.slot<...>, like #pipe.slot<"F:W">}}
func.func @slot_string(%x: tensor<4xf32> {pipe.slot = "F:W"}) { return }

// -----

// expected-error @below {{#pipe.slot<"forward"> has the unknown class 'forward'; expected store, unshard, reduced, update, eval, version, or FIRST:LAST of events of a stage, like recv_f:W}}
func.func @slot_class(%x: tensor<4xf32> {pipe.slot = #pipe.slot<"forward">}) { return }

// -----

// expected-error @below {{#pipe.slot<"send_f:W"> has the unknown first event 'send_f'; expected F, I, W, B, recv_f, recv_b}}
func.func @slot_first(%x: tensor<4xf32> {pipe.slot = #pipe.slot<"send_f:W">}) { return }

// -----

// expected-error @below {{#pipe.slot<"F:send_f,V"> has the unknown last event 'V'; expected F, I, W, B, send_f, send_b}}
func.func @slot_last(%x: tensor<4xf32> {pipe.slot = #pipe.slot<"F:send_f,V">}) { return }

// -----

// expected-error @below {{'pipe.stage' is -1 : i64; expected an i64, at least 0}}
func.func @stage() attributes {pipe.stage = -1 : i64} { return }

// -----

// expected-error @below {{'pipe.sums' is ["x"]; expected a list of #pipe.sum<operand = ..., result = ...>}}
func.func @sums() attributes {pipe.sums = ["x"]} { return }

// -----

// expected-error @below {{'pipe.schedule' is {axis = "x"}; expected #pipe.schedule<axis = ..., link = ..., position = ..., name = ..., table = ...>}}
module attributes {pipe.schedule = {axis = "x"}} {}

// -----

// expected-error @below {{schedule of axis "x" at position -1; expected the name of a mesh axis and a position of at least 0}}
module attributes {pipe.schedule = #pipe.schedule<axis = "x", link = "inter", position = -1, name = "1f1b", table = "">} {}

// -----

// expected-error @below {{unknown attribute 'pipe.slots' on a result; expected one of pipe.slot, pipe.stages, pipe.differentiable, pipe.inside}}
func.func @port(%x: tensor<4xf32>) -> (tensor<4xf32> {pipe.slots}) {
  return %x : tensor<4xf32>
}

// -----

// expected-error @below {{#pipe.slot<"F:"> has the unknown last event ''; expected F, I, W, B, send_f, send_b}}
func.func @slot_without_last(%x: tensor<4xf32> {pipe.slot = #pipe.slot<"F:">}) { return }

// -----

// expected-error @below {{#pipe.slot<"F:,,,"> has the unknown last event ''; expected F, I, W, B, send_f, send_b}}
func.func @slot_commas(%x: tensor<4xf32> {pipe.slot = #pipe.slot<"F:,,,">}) { return }

// -----

// expected-error @below {{#pipe.slot<"W:F"> ends with 'F', which comes before 'W'; expected events in the order recv_f, F, send_f, recv_b, I or B, W, send_b}}
func.func @slot_order(%x: tensor<4xf32> {pipe.slot = #pipe.slot<"W:F">}) { return }

// -----

// expected-error @below {{'pipe.stage' is 9; expected a stage below 'pipe.stages', which is 2}}
module attributes {pipe.stage = 9 : i64, pipe.stages = 2 : i64} {}

// -----

// expected-error @below {{'pipe.stages' is 0 : i64; expected an i64, at least 1}}
module attributes {pipe.stages = 0 : i64} {}

// -----

// expected-error @below {{argument 1 of @shared: 'pipe.stages' is array<i64: 2, 0>; expected an array<i64>, ascending stages}}
func.func @shared(%x: tensor<4xf32>, %w: tensor<4xf32> {pipe.stages = array<i64: 2, 0>}) { return }

// -----

// expected-error @below {{#pipe.sum has operand = "" and result = "b"; expected two names that are not empty}}
func.func @sum_name() attributes {pipe.sums = [#pipe.sum<operand = "", result = "b">]} { return }

// -----

// expected-error @below {{#pipe.sum of "a" with stages = [3, 0] has stage 0 after 3, expected ascending stages}}
func.func @sum_stages() attributes {pipe.sums = [#pipe.sum<operand = "a", result = "b", stages = [3, 0]>]} { return }

// -----

// expected-error @below {{table of schedule "1f1b" has 'garbage'; expected actions like 0F3 or 0UNSHARD: a stage, then F, I, W, B, UNSHARD, RESHARD or REDUCE_GRAD, then a microbatch}}
module attributes {pipe.schedule = #pipe.schedule<axis = "x", link = "inter", position = 0, name = "1f1b", table = "0F0,garbage">} {}

// -----

// expected-error @below {{table of schedule "1f1b" is "\0A"; expected at least one action, like 0F0}}
module attributes {pipe.schedule = #pipe.schedule<axis = "x", link = "inter", position = 0, name = "1f1b", table = "\0A">} {}
