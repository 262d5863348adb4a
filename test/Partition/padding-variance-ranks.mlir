// RUN: cleave-opt %s -split-input-file -dist-verify-variance -verify-diagnostics

// A table is read by index; indices beyond its end become -1.
dist.mesh @m <["x"=4]>
func.func @guarded(%a: tensor<3xf32> {dist.global_type = tensor<10xf32>, dist.sharding = #dist.sharding<@m, [{"x"}]>}, %i: tensor<7xi64>)
    -> (tensor<7xf32> {dist.sharding = #dist.sharding<@m, [{}], partial = sum{"x"}>}) {
  %offset = dist.tile_offset tile 3 over @m {"x"} : tensor<i64>
  %begin = nn.broadcast %offset dims = [] : tensor<i64> -> tensor<7xi64>
  %local = arith.subi %i, %begin : tensor<7xi64>
  %size = arith.constant dense<10> : tensor<7xi64>
  %below = arith.cmpi slt, %i, %size : tensor<7xi64>
  %outside = arith.constant dense<-1> : tensor<7xi64>
  %guarded = arith.select %below, %local, %outside : tensor<7xi1>, tensor<7xi64>
  %0 = nn.gather %a, %guarded dim = 0 : tensor<3xf32>, tensor<7xi64> -> tensor<7xf32>
  return %0 : tensor<7xf32>
}

// -----

// Indices beyond the end of the table may read the padding.
dist.mesh @m <["x"=4]>
func.func @guarded_late(%a: tensor<3xf32> {dist.global_type = tensor<10xf32>, dist.sharding = #dist.sharding<@m, [{"x"}]>}, %i: tensor<7xi64>)
    -> (tensor<7xf32> {dist.sharding = #dist.sharding<@m, [{}], partial = sum{"x"}>}) {
  %offset = dist.tile_offset tile 3 over @m {"x"} : tensor<i64>
  %begin = nn.broadcast %offset dims = [] : tensor<i64> -> tensor<7xi64>
  %local = arith.subi %i, %begin : tensor<7xi64>
  %size = arith.constant dense<11> : tensor<7xi64>
  %below = arith.cmpi slt, %i, %size : tensor<7xi64>
  %outside = arith.constant dense<-1> : tensor<7xi64>
  %guarded = arith.select %below, %local, %outside : tensor<7xi1>, tensor<7xi64>
  // expected-error @below {{expected -1 for indices that are not less than 10}}
  %0 = nn.gather %a, %guarded dim = 0 : tensor<3xf32>, tensor<7xi64> -> tensor<7xf32>
  return %0 : tensor<7xf32>
}

// -----

// The index subtracts the offset of only some of the axes.
dist.mesh @m <["x"=2,"y"=2]>
func.func @some_axes(%a: tensor<3xf32> {dist.global_type = tensor<10xf32>, dist.sharding = #dist.sharding<@m, [{"x","y"}]>}, %i: tensor<7xi64>)
    -> (tensor<7xf32> {dist.sharding = #dist.sharding<@m, [{}], partial = sum{"x","y"}>}) {
  %offset = dist.tile_offset tile 3 over @m {"y"} : tensor<i64>
  %begin = nn.broadcast %offset dims = [] : tensor<i64> -> tensor<7xi64>
  %local = arith.subi %i, %begin : tensor<7xi64>
  %n = arith.constant dense<10> : tensor<7xi64>
  %m1 = arith.constant dense<-1> : tensor<7xi64>
  %c = arith.cmpi slt, %i, %n : tensor<7xi64>
  %l = arith.select %c, %local, %m1 : tensor<7xi1>, tensor<7xi64>
  // expected-error @below {{reads dimension 0 of type 'tensor<3xf32>', of 10 elements split by axes "x", "y", whose last tiles end in padding, by index; expected the offset of a tile of 3 elements over the axes that split it}}
  %0 = nn.gather %a, %l dim = 0 : tensor<3xf32>, tensor<7xi64> -> tensor<7xf32>
  return %0 : tensor<7xf32>
}

// -----

// The tile is placed at its offset among zeros.
dist.mesh @m <["x"=4]>
func.func @embedded(%a: tensor<3xf32> {dist.global_type = tensor<10xf32>, dist.sharding = #dist.sharding<@m, [{"x"}]>})
    -> (tensor<10xf32> {dist.global_type = tensor<10xf32>, dist.sharding = #dist.sharding<@m, [{}], partial = sum{"x"}>}) {
  %offset = dist.tile_offset tile 3 over @m {"x"} : tensor<i64>
  %begin = nn.broadcast %offset dims = [] : tensor<i64> -> tensor<10xi64>
  %i = nn.iota dim = 0 : tensor<10xi64>
  %local = arith.subi %i, %begin : tensor<10xi64>
  %0 = nn.gather %a, %local dim = 0 : tensor<3xf32>, tensor<10xi64> -> tensor<10xf32>
  return %0 : tensor<10xf32>
}

// -----

// A permutation exchanges the tiles of x and y; afterwards y is the major axis.
dist.mesh @m <["x"=2, "y"=2]>
func.func @swapped(%a: tensor<3xf32> {dist.global_type = tensor<10xf32>, dist.sharding = #dist.sharding<@m, [{"x", "y"}]>})
    -> (tensor<f32> {dist.sharding = #dist.sharding<@m, [], partial = sum{"x", "y"}>}) {
  %p = dist.collective_permute %a pairs [0, 0, 1, 2, 2, 1, 3, 3] over @m {"x", "y"} purpose activation : tensor<3xf32>
  %size = arith.constant dense<10> : tensor<i64>
  %offset = dist.tile_offset tile 3 over @m {"y", "x"} : tensor<i64>
  %count = arith.subi %size, %offset : tensor<i64>
  %i = nn.iota dim = 0 : tensor<3xi64>
  %bound = nn.broadcast %count dims = [] : tensor<i64> -> tensor<3xi64>
  %valid = arith.cmpi slt, %i, %bound : tensor<3xi64>
  %zero = arith.constant dense<0.0> : tensor<3xf32>
  %0 = arith.select %valid, %p, %zero {dist.pad_mask} : tensor<3xi1>, tensor<3xf32>
  %1 = nn.reduce sum %0 dims = [0] : tensor<3xf32> -> tensor<f32>
  return %1 : tensor<f32>
}

// -----

// The mask uses the axis order from before the permutation.
dist.mesh @m <["x"=2, "y"=2]>
func.func @not_swapped(%a: tensor<3xf32> {dist.global_type = tensor<10xf32>, dist.sharding = #dist.sharding<@m, [{"x", "y"}]>})
    -> (tensor<f32> {dist.sharding = #dist.sharding<@m, [], partial = sum{"x", "y"}>}) {
  %p = dist.collective_permute %a pairs [0, 0, 1, 2, 2, 1, 3, 3] over @m {"x", "y"} purpose activation : tensor<3xf32>
  %size = arith.constant dense<10> : tensor<i64>
  %offset = dist.tile_offset tile 3 over @m {"x", "y"} : tensor<i64>
  %count = arith.subi %size, %offset : tensor<i64>
  %i = nn.iota dim = 0 : tensor<3xi64>
  %bound = nn.broadcast %count dims = [] : tensor<i64> -> tensor<3xi64>
  %valid = arith.cmpi slt, %i, %bound : tensor<3xi64>
  %zero = arith.constant dense<0.0> : tensor<3xf32>
  // expected-error @below {{as one of 10 elements split by axes "x", "y" into tiles of 3; expected 10 elements split by axes "y", "x", as the dimension has}}
  %0 = arith.select %valid, %p, %zero {dist.pad_mask} : tensor<3xi1>, tensor<3xf32>
  %1 = nn.reduce sum %0 dims = [0] : tensor<3xf32> -> tensor<f32>
  return %1 : tensor<f32>
}

// -----

// The permutation corresponds to no order of axes.
dist.mesh @m <["x"=2, "y"=2]>
func.func @unordered(%a: tensor<3xf32> {dist.global_type = tensor<10xf32>, dist.sharding = #dist.sharding<@m, [{"x", "y"}]>})
    -> (tensor<f32> {dist.sharding = #dist.sharding<@m, [], partial = sum{"x", "y"}>}) {
  %p = dist.collective_permute %a pairs [0, 3, 3, 0, 1, 2, 2, 1] over @m {"x", "y"} purpose activation : tensor<3xf32>
  %size = arith.constant dense<10> : tensor<i64>
  %offset = dist.tile_offset tile 3 over @m {"x", "y"} : tensor<i64>
  %count = arith.subi %size, %offset : tensor<i64>
  %i = nn.iota dim = 0 : tensor<3xi64>
  %bound = nn.broadcast %count dims = [] : tensor<i64> -> tensor<3xi64>
  %valid = arith.cmpi slt, %i, %bound : tensor<3xi64>
  %zero = arith.constant dense<0.0> : tensor<3xf32>
  // expected-error @below {{expected the mask before the tiles are sent to ranks that no order of axes numbers}}
  %0 = arith.select %valid, %p, %zero {dist.pad_mask} : tensor<3xi1>, tensor<3xf32>
  %1 = nn.reduce sum %0 dims = [0] : tensor<3xf32> -> tensor<f32>
  return %1 : tensor<f32>
}

// -----

// A sum over the output of a convolution that reads windows.
dist.mesh @m <["x"=4]>
func.func @windows(%a: tensor<2x3x3xf32> {dist.global_type = tensor<2x3x10xf32>, dist.sharding = #dist.sharding<@m, [{}, {}, {"x"}]>}, %w: tensor<4x3x3xf32>)
    -> (tensor<2x4xf32> {dist.sharding = #dist.sharding<@m, [{}, {}], partial = sum{"x"}>}) {
  %0 = dist.window %a dim 2 size 10 base -1 step 3 stride 1 whole 10 over @m {"x"} purpose activation : (tensor<2x3x3xf32>) -> tensor<2x3x5xf32>
  %1 = nn.conv %0, %w strides = [1] dilations = [1] low = [0] high = [0] groups = 1 : tensor<2x3x5xf32>, tensor<4x3x3xf32> -> tensor<2x4x3xf32>
  %size = arith.constant dense<10> : tensor<i64>
  %offset = dist.tile_offset tile 3 over @m {"x"} : tensor<i64>
  %count = arith.subi %size, %offset : tensor<i64>
  %i = nn.iota dim = 2 : tensor<2x4x3xi64>
  %bound = nn.broadcast %count dims = [] : tensor<i64> -> tensor<2x4x3xi64>
  %valid = arith.cmpi slt, %i, %bound : tensor<2x4x3xi64>
  %zero = arith.constant dense<0.0> : tensor<2x4x3xf32>
  %2 = arith.select %valid, %1, %zero {dist.pad_mask} : tensor<2x4x3xi1>, tensor<2x4x3xf32>
  %r = nn.reduce sum %2 dims = [2] : tensor<2x4x3xf32> -> tensor<2x4xf32>
  return %r : tensor<2x4xf32>
}

// -----

// The mask is missing.
dist.mesh @m <["x"=4]>
func.func @windows_unmasked(%a: tensor<2x3x3xf32> {dist.global_type = tensor<2x3x10xf32>, dist.sharding = #dist.sharding<@m, [{}, {}, {"x"}]>}, %w: tensor<4x3x3xf32>)
    -> (tensor<2x4xf32> {dist.sharding = #dist.sharding<@m, [{}, {}], partial = sum{"x"}>}) {
  %0 = dist.window %a dim 2 size 10 base -1 step 3 stride 1 whole 10 over @m {"x"} purpose activation : (tensor<2x3x3xf32>) -> tensor<2x3x5xf32>
  %1 = nn.conv %0, %w strides = [1] dilations = [1] low = [0] high = [0] groups = 1 : tensor<2x3x5xf32>, tensor<4x3x3xf32> -> tensor<2x4x3xf32>
  // expected-error @below {{combines (sum) along dimension 2 of operand 0 of type 'tensor<2x4x3xf32>', of 10 elements split by axis "x", whose last tiles end in padding of any content}}
  %r = nn.reduce sum %1 dims = [2] : tensor<2x4x3xf32> -> tensor<2x4xf32>
  return %r : tensor<2x4xf32>
}

// -----

// The mask is for another size.
dist.mesh @m <["x"=4]>
func.func @windows_size(%a: tensor<2x3x3xf32> {dist.global_type = tensor<2x3x10xf32>, dist.sharding = #dist.sharding<@m, [{}, {}, {"x"}]>}, %w: tensor<4x3x3xf32>)
    -> (tensor<2x4xf32> {dist.sharding = #dist.sharding<@m, [{}, {}], partial = sum{"x"}>}) {
  %0 = dist.window %a dim 2 size 10 base -1 step 3 stride 1 whole 10 over @m {"x"} purpose activation : (tensor<2x3x3xf32>) -> tensor<2x3x5xf32>
  %1 = nn.conv %0, %w strides = [1] dilations = [1] low = [0] high = [0] groups = 1 : tensor<2x3x5xf32>, tensor<4x3x3xf32> -> tensor<2x4x3xf32>
  %size = arith.constant dense<11> : tensor<i64>
  %offset = dist.tile_offset tile 3 over @m {"x"} : tensor<i64>
  %count = arith.subi %size, %offset : tensor<i64>
  %i = nn.iota dim = 2 : tensor<2x4x3xi64>
  %bound = nn.broadcast %count dims = [] : tensor<i64> -> tensor<2x4x3xi64>
  %valid = arith.cmpi slt, %i, %bound : tensor<2x4x3xi64>
  %zero = arith.constant dense<0.0> : tensor<2x4x3xf32>
  // expected-error @below {{as one of 11 elements split by axis "x" into tiles of 3; expected 10 elements split by axis "x", as the dimension has}}
  %2 = arith.select %valid, %1, %zero {dist.pad_mask} : tensor<2x4x3xi1>, tensor<2x4x3xf32>
  %r = nn.reduce sum %2 dims = [2] : tensor<2x4x3xf32> -> tensor<2x4xf32>
  return %r : tensor<2x4xf32>
}

// -----

// A slice of elements 1 to 6 of 10: beyond its end there are other elements, not padding.
dist.mesh @m <["x"=4]>
func.func @sliced(%a: tensor<3xf32> {dist.global_type = tensor<10xf32>, dist.sharding = #dist.sharding<@m, [{"x"}]>})
    -> (tensor<f32> {dist.sharding = #dist.sharding<@m, [], partial = sum{"x"}>}) {
  %0 = dist.window %a dim 0 size 10 base 1 step 2 stride 1 whole 7 over @m {"x"} purpose activation : (tensor<3xf32>) -> tensor<2xf32>
  // expected-error @below {{combines (sum) along dimension 0 of operand 0 of type 'tensor<2xf32>', of 7 elements split by axis "x", whose last tiles end in padding of any content}}
  %1 = nn.reduce sum %0 dims = [0] : tensor<2xf32> -> tensor<f32>
  return %1 : tensor<f32>
}

// -----

// dist.window fills positions beyond the last element with zeros.
dist.mesh @m <["x"=4]>
func.func @zeros(%a: tensor<3xf32> {dist.global_type = tensor<10xf32>, dist.sharding = #dist.sharding<@m, [{"x"}]>})
    -> (tensor<f32> {dist.sharding = #dist.sharding<@m, [], partial = sum{"x"}>}) {
  %0 = dist.window %a dim 0 size 10 base 1 step 3 stride 1 whole 9 over @m {"x"} purpose activation : (tensor<3xf32>) -> tensor<3xf32>
  %1 = nn.reduce sum %0 dims = [0] : tensor<3xf32> -> tensor<f32>
  return %1 : tensor<f32>
}
