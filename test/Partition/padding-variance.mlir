// RUN: cleave-opt %s -split-input-file -dist-verify-variance -verify-diagnostics

// The code that dist-partition emits for the maximum of 10 elements on 4 ranks.
dist.mesh @m <["x"=4]>
func.func @masked(%a: tensor<3x6xf32> {dist.global_type = tensor<10x6xf32>, dist.sharding = #dist.sharding<@m, [{"x"}, {}]>})
    -> (tensor<2xf32> {dist.global_type = tensor<6xf32>, dist.sharding = #dist.sharding<@m, [{"x"}]>}) {
  %size = arith.constant dense<10> : tensor<i64>
  %offset = dist.tile_offset tile 3 over @m {"x"} : tensor<i64>
  %count = arith.subi %size, %offset : tensor<i64>
  %i = nn.iota dim = 0 : tensor<3x6xi64>
  %bound = nn.broadcast %count dims = [] : tensor<i64> -> tensor<3x6xi64>
  %valid = arith.cmpi slt, %i, %bound : tensor<3x6xi64>
  %identity = arith.constant dense<0xFF800000> : tensor<3x6xf32>
  %0 = arith.select %valid, %a, %identity {dist.pad_mask} : tensor<3x6xi1>, tensor<3x6xf32>
  %1 = nn.reduce max %0 dims = [0] : tensor<3x6xf32> -> tensor<6xf32>
  %2 = nn.pad %1 low = [0] high = [2] value = 0.000000e+00 {dist.tile_padding} : tensor<6xf32> -> tensor<8xf32>
  %3 = dist.reduce_scatter max %2 dims [0] over @m {"x"} purpose activation : (tensor<8xf32>) -> tensor<2xf32>
  return %3 : tensor<2xf32>
}

// -----

// The mask is missing.
dist.mesh @m <["x"=4]>
func.func @unmasked(%a: tensor<3x6xf32> {dist.global_type = tensor<10x6xf32>, dist.sharding = #dist.sharding<@m, [{"x"}, {}]>})
    -> (tensor<6xf32> {dist.sharding = #dist.sharding<@m, [{}], partial = sum{"x"}>}) {
  %e = math.exp %a : tensor<3x6xf32>
  // expected-error @below {{combines (sum) along dimension 0 of operand 0 of type 'tensor<3x6xf32>', of 10 elements split by axis "x", whose last tiles end in padding of any content; expected the padding masked by 0.000000e+00 : f32 (an arith.select with dist.pad_mask before it)}}
  %0 = nn.reduce sum %e dims = [0] : tensor<3x6xf32> -> tensor<6xf32>
  return %0 : tensor<6xf32>
}

// -----

// Padding is masked with the identity of a sum, but read by a maximum.
dist.mesh @m <["x"=4]>
func.func @identity(%a: tensor<3xf32> {dist.global_type = tensor<10xf32>, dist.sharding = #dist.sharding<@m, [{"x"}]>})
    -> (tensor<f32> {dist.sharding = #dist.sharding<@m, [], partial = max{"x"}>}) {
  %size = arith.constant dense<10> : tensor<i64>
  %offset = dist.tile_offset tile 3 over @m {"x"} : tensor<i64>
  %count = arith.subi %size, %offset : tensor<i64>
  %i = nn.iota dim = 0 : tensor<3xi64>
  %bound = nn.broadcast %count dims = [] : tensor<i64> -> tensor<3xi64>
  %valid = arith.cmpi slt, %i, %bound : tensor<3xi64>
  %zero = arith.constant dense<0.0> : tensor<3xf32>
  %0 = arith.select %valid, %a, %zero {dist.pad_mask} : tensor<3xi1>, tensor<3xf32>
  // expected-error @below {{combines (max) along dimension 0 of operand 0 of type 'tensor<3xf32>', of 10 elements split by axis "x", whose last tiles end in padding of 0.000000e+00 : f32; expected the padding masked by 0xFF800000 : f32}}
  %1 = nn.reduce max %0 dims = [0] : tensor<3xf32> -> tensor<f32>
  return %1 : tensor<f32>
}

// -----

// The mask is for 11 elements, but there are 10.
dist.mesh @m <["x"=4]>
func.func @size(%a: tensor<3xf32> {dist.global_type = tensor<10xf32>, dist.sharding = #dist.sharding<@m, [{"x"}]>})
    -> (tensor<f32> {dist.sharding = #dist.sharding<@m, [], partial = sum{"x"}>}) {
  %size = arith.constant dense<11> : tensor<i64>
  %offset = dist.tile_offset tile 3 over @m {"x"} : tensor<i64>
  %count = arith.subi %size, %offset : tensor<i64>
  %i = nn.iota dim = 0 : tensor<3xi64>
  %bound = nn.broadcast %count dims = [] : tensor<i64> -> tensor<3xi64>
  %valid = arith.cmpi slt, %i, %bound : tensor<3xi64>
  %zero = arith.constant dense<0.0> : tensor<3xf32>
  // expected-error @below {{masks dimension 0 of type 'tensor<3xf32>' as one of 11 elements split by axis "x" into tiles of 3; expected 10 elements split by axis "x", as the dimension has}}
  %0 = arith.select %valid, %a, %zero {dist.pad_mask} : tensor<3xi1>, tensor<3xf32>
  %1 = nn.reduce sum %0 dims = [0] : tensor<3xf32> -> tensor<f32>
  return %1 : tensor<f32>
}

// -----

// The mask uses the offset of another tile size.
dist.mesh @m <["x"=4]>
func.func @tile(%a: tensor<3xf32> {dist.global_type = tensor<10xf32>, dist.sharding = #dist.sharding<@m, [{"x"}]>})
    -> (tensor<f32> {dist.sharding = #dist.sharding<@m, [], partial = sum{"x"}>}) {
  %size = arith.constant dense<10> : tensor<i64>
  %offset = dist.tile_offset tile 4 over @m {"x"} : tensor<i64>
  %count = arith.subi %size, %offset : tensor<i64>
  %i = nn.iota dim = 0 : tensor<3xi64>
  %bound = nn.broadcast %count dims = [] : tensor<i64> -> tensor<3xi64>
  %valid = arith.cmpi slt, %i, %bound : tensor<3xi64>
  %zero = arith.constant dense<0.0> : tensor<3xf32>
  // expected-error @below {{into tiles of 4; expected the offset to be counted in tiles of 3, as the dimension has}}
  %0 = arith.select %valid, %a, %zero {dist.pad_mask} : tensor<3xi1>, tensor<3xf32>
  %1 = nn.reduce sum %0 dims = [0] : tensor<3xf32> -> tensor<f32>
  return %1 : tensor<f32>
}

// -----

// The mask uses another order of axes.
dist.mesh @m <["x"=2, "y"=2]>
func.func @order(%a: tensor<3xf32> {dist.global_type = tensor<10xf32>, dist.sharding = #dist.sharding<@m, [{"x", "y"}]>})
    -> (tensor<f32> {dist.sharding = #dist.sharding<@m, [], partial = sum{"x", "y"}>}) {
  %size = arith.constant dense<10> : tensor<i64>
  %offset = dist.tile_offset tile 3 over @m {"y", "x"} : tensor<i64>
  %count = arith.subi %size, %offset : tensor<i64>
  %i = nn.iota dim = 0 : tensor<3xi64>
  %bound = nn.broadcast %count dims = [] : tensor<i64> -> tensor<3xi64>
  %valid = arith.cmpi slt, %i, %bound : tensor<3xi64>
  %zero = arith.constant dense<0.0> : tensor<3xf32>
  // expected-error @below {{as one of 10 elements split by axes "y", "x" into tiles of 3; expected 10 elements split by axes "x", "y", as the dimension has}}
  %0 = arith.select %valid, %a, %zero {dist.pad_mask} : tensor<3xi1>, tensor<3xf32>
  %1 = nn.reduce sum %0 dims = [0] : tensor<3xf32> -> tensor<f32>
  return %1 : tensor<f32>
}

// -----

// The mask is for a dimension without padding.
dist.mesh @m <["x"=4]>
func.func @dimension(%a: tensor<3x3xf32> {dist.global_type = tensor<10x3xf32>, dist.sharding = #dist.sharding<@m, [{"x"}, {}]>})
    -> (tensor<3xf32> {dist.sharding = #dist.sharding<@m, [{}], partial = sum{"x"}>}) {
  %size = arith.constant dense<10> : tensor<i64>
  %offset = dist.tile_offset tile 3 over @m {"x"} : tensor<i64>
  %count = arith.subi %size, %offset : tensor<i64>
  %i = nn.iota dim = 1 : tensor<3x3xi64>
  %bound = nn.broadcast %count dims = [] : tensor<i64> -> tensor<3x3xi64>
  %valid = arith.cmpi slt, %i, %bound : tensor<3x3xi64>
  %zero = arith.constant dense<0.0> : tensor<3x3xf32>
  // expected-error @below {{masks dimension 1 of type 'tensor<3x3xf32>' as one of 10 elements split by axis "x" into tiles of 3; expected no mask: the dimension has no padding, and elements would be lost}}
  %0 = arith.select %valid, %a, %zero {dist.pad_mask} : tensor<3x3xi1>, tensor<3x3xf32>
  %1 = nn.reduce sum %0 dims = [0] : tensor<3x3xf32> -> tensor<3xf32>
  return %1 : tensor<3xf32>
}

// -----

// The mask leaves one element of the padding.
dist.mesh @m <["x"=4]>
func.func @not_below(%a: tensor<3xf32> {dist.global_type = tensor<10xf32>, dist.sharding = #dist.sharding<@m, [{"x"}]>})
    -> (tensor<f32> {dist.sharding = #dist.sharding<@m, [], partial = sum{"x"}>}) {
  %size = arith.constant dense<10> : tensor<i64>
  %offset = dist.tile_offset tile 3 over @m {"x"} : tensor<i64>
  %count = arith.subi %size, %offset : tensor<i64>
  %i = nn.iota dim = 0 : tensor<3xi64>
  %bound = nn.broadcast %count dims = [] : tensor<i64> -> tensor<3xi64>
  %valid = arith.cmpi sle, %i, %bound : tensor<3xi64>
  %zero = arith.constant dense<0.0> : tensor<3xf32>
  // expected-error @below {{has dist.pad_mask and is no mask; expected the condition iota < (size - dist.tile_offset)}}
  %0 = arith.select %valid, %a, %zero {dist.pad_mask} : tensor<3xi1>, tensor<3xf32>
  %1 = nn.reduce sum %0 dims = [0] : tensor<3xf32> -> tensor<f32>
  return %1 : tensor<f32>
}

// -----

// Both factors of a product must be masked: padding may contain NaN.
dist.mesh @m <["x"=4]>
func.func @product(%a: tensor<5x3xf32> {dist.global_type = tensor<5x10xf32>, dist.sharding = #dist.sharding<@m, [{}, {"x"}]>},
                   %b: tensor<3x6xf32> {dist.global_type = tensor<10x6xf32>, dist.sharding = #dist.sharding<@m, [{"x"}, {}]>})
    -> (tensor<5x6xf32> {dist.sharding = #dist.sharding<@m, [{}, {}], partial = sum{"x"}>}) {
  %size = arith.constant dense<10> : tensor<i64>
  %offset = dist.tile_offset tile 3 over @m {"x"} : tensor<i64>
  %count = arith.subi %size, %offset : tensor<i64>
  %i = nn.iota dim = 1 : tensor<5x3xi64>
  %bound = nn.broadcast %count dims = [] : tensor<i64> -> tensor<5x3xi64>
  %valid = arith.cmpi slt, %i, %bound : tensor<5x3xi64>
  %zero = arith.constant dense<0.0> : tensor<5x3xf32>
  %0 = arith.select %valid, %a, %zero {dist.pad_mask} : tensor<5x3xi1>, tensor<5x3xf32>
  // expected-error @below {{combines (sum) along dimension 0 of operand 1}}
  %1 = nn.einsum "ij,jk->ik" %0, %b : tensor<5x3xf32>, tensor<3x6xf32> -> tensor<5x6xf32>
  return %1 : tensor<5x6xf32>
}

// -----

// The result has another size than declared.
dist.mesh @m <["x"=4]>
// expected-error @below {{result 0 of @result has a dimension 0 of 10 elements split by axis "x"; expected 11 elements split by axis "x", as its dist.global_type and sharding say}}
func.func @result(%a: tensor<3xf32> {dist.global_type = tensor<10xf32>, dist.sharding = #dist.sharding<@m, [{"x"}]>})
    -> (tensor<3xf32> {dist.global_type = tensor<11xf32>, dist.sharding = #dist.sharding<@m, [{"x"}]>}) {
  return %a : tensor<3xf32>
}

// -----

// The argument's type is not the tile of its global type.
dist.mesh @m <["x"=4]>
// expected-error @below {{argument 0 of @tile_of_whole is 'tensor<4xf32>', but the tile that its sharding cuts of its dist.global_type is 'tensor<3xf32>'}}
func.func @tile_of_whole(%a: tensor<4xf32> {dist.global_type = tensor<10xf32>, dist.sharding = #dist.sharding<@m, [{"x"}]>}) {
  return
}

// -----

// An unmasked number is concatenated with the masked padding.
dist.mesh @m <["x"=4]>
func.func @beside(%a: tensor<3x6xf32> {dist.global_type = tensor<10x6xf32>, dist.sharding = #dist.sharding<@m, [{"x"}, {}]>}) -> (tensor<7xf32> {dist.sharding = #dist.sharding<@m, [{}], partial = sum{"x"}>}) {
  %size = arith.constant dense<10> : tensor<i64>
  %offset = dist.tile_offset tile 3 over @m {"x"} : tensor<i64>
  %count = arith.subi %size, %offset : tensor<i64>
  %i = nn.iota dim = 0 : tensor<3x6xi64>
  %bound = nn.broadcast %count dims = [] : tensor<i64> -> tensor<3x6xi64>
  %valid = arith.cmpi slt, %i, %bound : tensor<3x6xi64>
  %id = arith.constant dense<0.0> : tensor<3x6xf32>
  %0 = arith.select %valid, %a, %id {dist.pad_mask} : tensor<3x6xi1>, tensor<3x6xf32>
  %1 = nn.pad %0 low = [0, 0] high = [0, 1] value = 5.0 : tensor<3x6xf32> -> tensor<3x7xf32>
  // expected-error @below {{combines (sum) along dimension 0 of operand 0 of type 'tensor<3x7xf32>', of 10 elements split by axis "x", whose last tiles end in padding of any content}}
  %2 = nn.reduce sum %1 dims = [0] : tensor<3x7xf32> -> tensor<7xf32>
  return %2 : tensor<7xf32>
}

// -----

// Two tiles of equal size belong to dimensions of 8 and of 7 elements.
dist.mesh @m <["x"=4]>
func.func @two_sizes(%a: tensor<2xf32> {dist.global_type = tensor<8xf32>, dist.sharding = #dist.sharding<@m, [{"x"}]>},
  %b: tensor<2xf32> {dist.global_type = tensor<7xf32>, dist.sharding = #dist.sharding<@m, [{"x"}]>}) -> (tensor<2xf32> {dist.global_type = tensor<7xf32>, dist.sharding = #dist.sharding<@m, [{"x"}]>}) {
  // expected-error @below {{combines dimension 0 of operand 1, of 7 elements split by axis "x", with one of 8 elements split by axis "x"}}
  %2 = arith.addf %a, %b : tensor<2xf32>
  return %2 : tensor<2xf32>
}

// -----

// The result has elements where its declared type has padding.
dist.mesh @m <["x"=4]>
func.func @whole_result(%a: tensor<2xf32> {dist.global_type = tensor<8xf32>, dist.sharding = #dist.sharding<@m, [{"x"}]>}) -> (tensor<2xf32> {dist.global_type = tensor<7xf32>, dist.sharding = #dist.sharding<@m, [{"x"}]>}) {
  // expected-error @below {{result 0 of @whole_result has a dimension 0 of 8 elements split by axis "x"; expected 7 elements split by axis "x", as its dist.global_type and sharding say}}
  %2 = arith.addf %a, %a : tensor<2xf32>
  return %2 : tensor<2xf32>
}

// -----

// Dynamic sizes.
dist.mesh @m <["x"=4]>
// expected-error @below {{argument 0 of @dynamic: type 'tensor<?xf32>'; expected sizes that are known before the program runs}}
func.func @dynamic(%a: tensor<?xf32> {dist.global_type = tensor<?xf32>, dist.sharding = #dist.sharding<@m, [{"x"}]>}) {
  return
}
