// RUN: cleave-opt %s -split-input-file -verify-diagnostics

// A code such as C1 names the documented verifier rule that the case below violates.

// EX1
dist.mesh @m <["x"=4]>
func.func @count(%a: tensor<3xf32>) {
  // expected-error @below {{'dist.exchange' op has 1 shardings before, 0 after and 1 global types, expected 1 of each, one for each operand}}
  %0 = dist.exchange %a from [#dist.sharding<@m, [{"x"}]>] to [] of [tensor<10xf32>]
      over @m {"x"} purpose loss : (tensor<3xf32>) -> tensor<10xf32>
  return
}

// -----

// EX1
dist.mesh @m <["x"=4]>
func.func @rank(%a: tensor<3xf32>) {
  // expected-error @below {{has 2 dimensions, expected 1 for 'tensor<10xf32>'}}
  %0 = dist.exchange %a from [#dist.sharding<@m, [{"x"}, {}]>] to [#dist.sharding<@m, [{}]>]
      of [tensor<10xf32>] over @m {"x"} purpose loss : (tensor<3xf32>) -> tensor<10xf32>
  return
}

// -----

// EX1
dist.mesh @m <["x"=4]>
func.func @other_mesh(%a: tensor<3xf32>) {
  // expected-error @below {{is on another mesh than @m}}
  %0 = dist.exchange %a from [#dist.sharding<@n, [{"x"}]>] to [#dist.sharding<@m, [{}]>]
      of [tensor<10xf32>] over @m {"x"} purpose loss : (tensor<3xf32>) -> tensor<10xf32>
  return
}

// -----

// EX1
dist.mesh @m <["x"=4]>
func.func @dynamic(%a: tensor<3xf32>) {
  // expected-error @below {{global type tensor<?xf32> is no tensor of static shape}}
  %0 = dist.exchange %a from [#dist.sharding<@m, [{"x"}]>] to [#dist.sharding<@m, [{}]>]
      of [tensor<?xf32>] over @m {"x"} purpose loss : (tensor<3xf32>) -> tensor<10xf32>
  return
}

// -----

// EX2
dist.mesh @m <["x"=4]>
func.func @tile(%a: tensor<2xf32>) {
  // expected-error @below {{is no tile of 'tensor<10xf32>' under #dist.sharding<@m, [{"x"}]>; expected 'tensor<3xf32>'}}
  %0 = dist.exchange %a from [#dist.sharding<@m, [{"x"}]>] to [#dist.sharding<@m, [{}]>]
      of [tensor<10xf32>] over @m {"x"} purpose loss : (tensor<2xf32>) -> tensor<10xf32>
  return
}

// -----

// EX2
dist.mesh @m <["x"=4]>
func.func @element(%a: tensor<3xf32>) {
  // expected-error @below {{of result 0 has another element type than the operand}}
  %0 = dist.exchange %a from [#dist.sharding<@m, [{"x"}]>] to [#dist.sharding<@m, [{}]>]
      of [tensor<10xf32>] over @m {"x"} purpose loss : (tensor<3xf32>) -> tensor<10xf64>
  return
}

// -----

// EX3
dist.mesh @m <["x"=4]>
func.func @candidates(%a: tensor<3xf32>) {
  // expected-error @below {{makes candidates of a max of operand 0; an exchange makes partial sums of a sum only}}
  %0 = dist.exchange %a from [#dist.sharding<@m, [{"x"}]>] to [#dist.sharding<@m, [{}], partial = max{"x"}>]
      of [tensor<10xf32>] over @m {"x"} purpose loss : (tensor<3xf32>) -> tensor<10xf32>
  return
}

// -----

// EX3
dist.mesh @m <["x"=4, "y"=2]>
func.func @new_partial(%a: tensor<3xf32>) {
  // expected-error @below {{has operand 0 partial over #dist.axes<{"y"}> only after the exchange, and it is not among its axes}}
  %0 = dist.exchange %a from [#dist.sharding<@m, [{"x"}]>] to [#dist.sharding<@m, [{}], partial = sum{"y"}>]
      of [tensor<10xf32>] over @m {"x"} purpose loss : (tensor<3xf32>) -> tensor<10xf32>
  return
}

// -----

// EX3
dist.mesh @m <["x"=4, "y"=2]>
func.func @stays_partial(%a: tensor<3xf32>) {
  // expected-error @below {{has operand 0 partial over #dist.axes<{"y"}> only before the exchange, and it is not among its axes}}
  %0 = dist.exchange %a from [#dist.sharding<@m, [{"x"}], partial = sum{"y"}>] to [#dist.sharding<@m, [{}]>]
      of [tensor<10xf32>] over @m {"x"} purpose loss : (tensor<3xf32>) -> tensor<10xf32>
  return
}

// -----

// EX3
dist.mesh @m <["x"=4, "y"=2]>
func.func @other_kind(%a: tensor<3xf32>) {
  // expected-error @below {{leaves operand 0 partial over #dist.axes<{"y"}>, but as a sum, not a max}}
  %0 = dist.exchange %a from [#dist.sharding<@m, [{"x"}], partial = max{"y"}>] to [#dist.sharding<@m, [{}], partial = sum{"y"}>]
      of [tensor<10xf32>] over @m {"x"} purpose loss : (tensor<3xf32>) -> tensor<10xf32>
  return
}

// -----

// EX5
dist.mesh @m <["x"=4]>
func.func @rounds(%a: tensor<3xf32>) {
  // expected-error @below {{has 3 rounds, expected 1 or 2}}
  %0 = dist.exchange %a from [#dist.sharding<@m, [{"x"}]>] to [#dist.sharding<@m, [{}]>]
      of [tensor<10xf32>] over @m {"x"} purpose loss {rounds = 3 : i64} : (tensor<3xf32>) -> tensor<10xf32>
  return
}

// -----

// EX4: tiles of 3 under x are no runs of tiles of 2 under x and y.
dist.mesh @m <["x"=4, "y"=2]>
func.func @does_not_nest(%a: tensor<2xf32>) {
  // expected-error @below {{moves elements of operand 0 over #dist.axes<{"x", "y"}>, which is not among its axes}}
  %0 = dist.exchange %a from [#dist.sharding<@m, [{"x", "y"}]>] to [#dist.sharding<@m, [{"x"}]>]
      of [tensor<10xf32>] over @m {} purpose loss : (tensor<2xf32>) -> tensor<3xf32>
  return
}

// -----

// EX4
dist.mesh @m <["x"=4, "y"=2]>
func.func @left_out(%a: tensor<3xf32>) {
  // expected-error @below {{moves elements of operand 0 over #dist.axes<{"x"}>, which is not among its axes}}
  %0 = dist.exchange %a from [#dist.sharding<@m, [{"x"}]>] to [#dist.sharding<@m, [{}]>]
      of [tensor<10xf32>] over @m {"y"} purpose loss : (tensor<3xf32>) -> tensor<10xf32>
  return
}

// -----

// EX3: no rank has all candidates, so none knows the maximum.
dist.mesh @m <["x"=2, "y"=2]>
func.func @candidates_to_partial_sums(%a: tensor<10xf32>) {
  // expected-error @below {{makes partial sums of candidates of a max of operand 0 in one round}}
  %0 = dist.exchange %a from [#dist.sharding<@m, [{}], partial = max{"x"}>] to [#dist.sharding<@m, [{}], partial = sum{"y"}>]
      of [tensor<10xf32>] over @m {"x", "y"} purpose loss : (tensor<10xf32>) -> tensor<10xf32>
  return
}
