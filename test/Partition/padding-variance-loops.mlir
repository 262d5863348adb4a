// RUN: cleave-opt %s -split-input-file -dist-verify-variance -verify-diagnostics

// The carried value is padded, and masked in each iteration.
dist.mesh @m <["x"=4]>
func.func @carried(%a: tensor<3xf32> {dist.global_type = tensor<10xf32>, dist.sharding = #dist.sharding<@m, [{"x"}]>}) -> tensor<f32> {
  %first = arith.constant 0 : index
  %one = arith.constant 1 : index
  %trips = arith.constant 3 : index
  %none = arith.constant dense<0.0> : tensor<f32>
  %r:2 = scf.for %k = %first to %trips step %one iter_args(%t = %a, %s = %none) -> (tensor<3xf32>, tensor<f32>) {
    %size = arith.constant dense<10> : tensor<i64>
    %offset = dist.tile_offset tile 3 over @m {"x"} : tensor<i64>
    %count = arith.subi %size, %offset : tensor<i64>
    %i = nn.iota dim = 0 : tensor<3xi64>
    %bound = nn.broadcast %count dims = [] : tensor<i64> -> tensor<3xi64>
    %valid = arith.cmpi slt, %i, %bound : tensor<3xi64>
    %zero = arith.constant dense<0.0> : tensor<3xf32>
    %0 = arith.select %valid, %t, %zero {dist.pad_mask} : tensor<3xi1>, tensor<3xf32>
    %u = nn.reduce sum %0 dims = [0] : tensor<3xf32> -> tensor<f32>
    %v = dist.all_reduce sum %u over @m {"x"} purpose activation : tensor<f32>
    %w = arith.addf %v, %s : tensor<f32>
    scf.yield %a, %w : tensor<3xf32>, tensor<f32>
  } {dist.sharding = [#dist.sharding<@m, [{"x"}]>, #dist.sharding<@m, []>]}
  return %r#1 : tensor<f32>
}

// -----

// The mask is missing.
dist.mesh @m <["x"=4]>
func.func @carried_unmasked(%a: tensor<3xf32> {dist.global_type = tensor<10xf32>, dist.sharding = #dist.sharding<@m, [{"x"}]>}) -> tensor<f32> {
  %first = arith.constant 0 : index
  %one = arith.constant 1 : index
  %trips = arith.constant 3 : index
  %none = arith.constant dense<0.0> : tensor<f32>
  %r:2 = scf.for %k = %first to %trips step %one iter_args(%t = %a, %s = %none) -> (tensor<3xf32>, tensor<f32>) {
    // expected-error @below {{combines (sum) along dimension 0 of operand 0 of type 'tensor<3xf32>', of 10 elements split by axis "x", whose last tiles end in padding of any content}}
    %u = nn.reduce sum %t dims = [0] : tensor<3xf32> -> tensor<f32>
    %v = dist.all_reduce sum %u over @m {"x"} purpose activation : tensor<f32>
    %w = arith.addf %v, %s : tensor<f32>
    scf.yield %a, %w : tensor<3xf32>, tensor<f32>
  } {dist.sharding = [#dist.sharding<@m, [{"x"}]>, #dist.sharding<@m, []>]}
  return %r#1 : tensor<f32>
}

// -----

// The carried value is a constant first, and has padded tiles from the second iteration on.
dist.mesh @m <["x"=4]>
func.func @constant_first(%a: tensor<3xf32> {dist.global_type = tensor<10xf32>, dist.sharding = #dist.sharding<@m, [{"x"}]>}) -> tensor<f32> {
  %first = arith.constant 0 : index
  %one = arith.constant 1 : index
  %trips = arith.constant 3 : index
  %none = arith.constant dense<0.0> : tensor<f32>
  %ones = arith.constant dense<1.0> : tensor<3xf32>
  %r:2 = scf.for %k = %first to %trips step %one iter_args(%t = %ones, %s = %none) -> (tensor<3xf32>, tensor<f32>) {
    %size = arith.constant dense<10> : tensor<i64>
    %offset = dist.tile_offset tile 3 over @m {"x"} : tensor<i64>
    %count = arith.subi %size, %offset : tensor<i64>
    %i = nn.iota dim = 0 : tensor<3xi64>
    %bound = nn.broadcast %count dims = [] : tensor<i64> -> tensor<3xi64>
    %valid = arith.cmpi slt, %i, %bound : tensor<3xi64>
    %zero = arith.constant dense<0.0> : tensor<3xf32>
    %0 = arith.select %valid, %t, %zero {dist.pad_mask} : tensor<3xi1>, tensor<3xf32>
    %u = nn.reduce sum %0 dims = [0] : tensor<3xf32> -> tensor<f32>
    %v = dist.all_reduce sum %u over @m {"x"} purpose activation : tensor<f32>
    %w = arith.addf %v, %s : tensor<f32>
    scf.yield %a, %w : tensor<3xf32>, tensor<f32>
  } {dist.sharding = [#dist.sharding<@m, [{"x"}]>, #dist.sharding<@m, []>]}
  return %r#1 : tensor<f32>
}

// -----

// The mask is missing.
dist.mesh @m <["x"=4]>
func.func @constant_first_unmasked(%a: tensor<3xf32> {dist.global_type = tensor<10xf32>, dist.sharding = #dist.sharding<@m, [{"x"}]>}) -> tensor<f32> {
  %first = arith.constant 0 : index
  %one = arith.constant 1 : index
  %trips = arith.constant 3 : index
  %none = arith.constant dense<0.0> : tensor<f32>
  %ones = arith.constant dense<1.0> : tensor<3xf32>
  %r:2 = scf.for %k = %first to %trips step %one iter_args(%t = %ones, %s = %none) -> (tensor<3xf32>, tensor<f32>) {
    // expected-error @below {{combines (sum) along dimension 0 of operand 0 of type 'tensor<3xf32>', of 10 elements split by axis "x", whose last tiles end in padding of any content}}
    %u = nn.reduce sum %t dims = [0] : tensor<3xf32> -> tensor<f32>
    %v = dist.all_reduce sum %u over @m {"x"} purpose activation : tensor<f32>
    %w = arith.addf %v, %s : tensor<f32>
    scf.yield %a, %w : tensor<3xf32>, tensor<f32>
  } {dist.sharding = [#dist.sharding<@m, [{"x"}]>, #dist.sharding<@m, []>]}
  return %r#1 : tensor<f32>
}

// -----

// The carried tiles are of 8 elements on entry, and of 7 after an iteration.
dist.mesh @m <["x"=4]>
func.func @other_size(%a: tensor<2xf32> {dist.global_type = tensor<8xf32>, dist.sharding = #dist.sharding<@m, [{"x"}]>},
 %b: tensor<2xf32> {dist.global_type = tensor<7xf32>, dist.sharding = #dist.sharding<@m, [{"x"}]>},
  %z: tensor<f32>) -> (tensor<f32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  // expected-error @below {{carries a dimension 0 of 8 elements split by axis "x" that is yielded with 7 elements split by axis "x"}}
  %r:2 = scf.for %k = %c0 to %c3 step %c1 iter_args(%t = %a, %s = %z) -> (tensor<2xf32>, tensor<f32>) {
    %u = nn.reduce sum %t dims = [0] : tensor<2xf32> -> tensor<f32>
    %v = dist.all_reduce sum %u over @m {"x"} purpose activation : tensor<f32>
    %w = arith.addf %v, %s : tensor<f32>
    scf.yield %b, %w : tensor<2xf32>, tensor<f32>
  } {dist.sharding = [#dist.sharding<@m, [{"x"}]>, #dist.sharding<@m, []>]}
  return %r#1 : tensor<f32>
}
