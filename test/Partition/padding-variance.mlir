// RUN: cleave-opt %s -split-input-file -dist-verify-variance -verify-diagnostics

// What dist-partition emits: the largest of 10 elements on 4 ranks.
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

// No mask.
dist.mesh @m <["x"=4]>
func.func @unmasked(%a: tensor<3x6xf32> {dist.global_type = tensor<10x6xf32>, dist.sharding = #dist.sharding<@m, [{"x"}, {}]>})
    -> (tensor<6xf32> {dist.sharding = #dist.sharding<@m, [{}], partial = sum{"x"}>}) {
  %e = math.exp %a : tensor<3x6xf32>
  // expected-error @below {{combines (sum) along dimension 0 of operand 0 of type 'tensor<3x6xf32>', of 10 elements split by axis "x", whose last tiles end in padding of any content; expected the padding masked by 0.000000e+00 : f32 (an arith.select with dist.pad_mask before it)}}
  %0 = nn.reduce sum %e dims = [0] : tensor<3x6xf32> -> tensor<6xf32>
  return %0 : tensor<6xf32>
}

// -----

// The identity of a sum before a maximum.
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

// A mask of 11 elements where there are 10.
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

// The offset of another tile.
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

// Tiles counted in another order.
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

// Along a dimension that has no padding.
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

// One element of the padding stays.
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

// Of a product both factors are masked: padding may be no number.
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

// Softmax of rows that were gathered and not cut.
dist.mesh @m <["x"=4]>
func.func @not_cut(%a: tensor<5x3xf32> {dist.global_type = tensor<5x10xf32>, dist.sharding = #dist.sharding<@m, [{}, {"x"}]>}) -> tensor<5x10xf32> {
  %0 = dist.all_gather %a dims [1] over @m {"x"} purpose activation : (tensor<5x3xf32>) -> tensor<5x12xf32>
  // expected-error @below {{reads all of dimension 1 of operand 0 of type 'tensor<5x12xf32>', of 10 elements, which ends in padding; expected a dimension without: gathered and cut to 10 elements (nn.slice)}}
  %1 = nn.softmax %0 : tensor<5x12xf32>
  %2 = nn.slice %1 [0, 0] [5, 10] [1, 1] : tensor<5x12xf32> -> tensor<5x10xf32>
  return %2 : tensor<5x10xf32>
}

// -----

// Cut before.
dist.mesh @m <["x"=4]>
func.func @cut(%a: tensor<5x3xf32> {dist.global_type = tensor<5x10xf32>, dist.sharding = #dist.sharding<@m, [{}, {"x"}]>}) -> tensor<5x10xf32> {
  %0 = dist.all_gather %a dims [1] over @m {"x"} purpose activation : (tensor<5x3xf32>) -> tensor<5x12xf32>
  %1 = nn.slice %0 [0, 0] [5, 10] [1, 1] : tensor<5x12xf32> -> tensor<5x10xf32>
  %2 = nn.softmax %1 : tensor<5x10xf32>
  return %2 : tensor<5x10xf32>
}

// -----

// A table that ends in padding, read by indices that may point there.
dist.mesh @m <["x"=4]>
func.func @index(%a: tensor<3xf32> {dist.global_type = tensor<10xf32>, dist.sharding = #dist.sharding<@m, [{"x"}]>}, %i: tensor<7xi64>)
    -> (tensor<7xf32> {dist.sharding = #dist.sharding<@m, [{}], partial = sum{"x"}>}) {
  %offset = dist.tile_offset tile 3 over @m {"x"} : tensor<i64>
  %begin = nn.broadcast %offset dims = [] : tensor<i64> -> tensor<7xi64>
  %local = arith.subi %i, %begin : tensor<7xi64>
  // expected-error @below {{reads dimension 0 of type 'tensor<3xf32>', of 10 elements split by axis "x", whose last tiles end in padding, by index; expected indices less the tile's offset, -1 where they are not less than 10}}
  %0 = nn.gather %a, %local dim = 0 : tensor<3xf32>, tensor<7xi64> -> tensor<7xf32>
  return %0 : tensor<7xf32>
}

// -----

// A window of more elements than there are.
dist.mesh @m <["x"=4]>
func.func @window(%a: tensor<3xf32> {dist.global_type = tensor<10xf32>, dist.sharding = #dist.sharding<@m, [{"x"}]>})
    -> (tensor<3xf32> {dist.global_type = tensor<10xf32>, dist.sharding = #dist.sharding<@m, [{"x"}]>}) {
  // expected-error @below {{takes windows of dimension 0 as one of 11 elements; expected 10 elements split by axis "x", as the operand has}}
  %0 = dist.window %a dim 0 size 11 base -1 step 3 stride 1 over @m {"x"} purpose activation : (tensor<3xf32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}

// -----

// A result of another size.
dist.mesh @m <["x"=4]>
// expected-error @below {{result 0 of @result has a dimension 0 of 10 elements split by axis "x", expected as its dist.global_type and sharding say: 11 elements split 4 ways}}
func.func @result(%a: tensor<3xf32> {dist.global_type = tensor<10xf32>, dist.sharding = #dist.sharding<@m, [{"x"}]>})
    -> (tensor<3xf32> {dist.global_type = tensor<11xf32>, dist.sharding = #dist.sharding<@m, [{"x"}]>}) {
  return %a : tensor<3xf32>
}

// -----

// A tile that is not of the whole.
dist.mesh @m <["x"=4]>
// expected-error @below {{argument 0 of @tile_of_whole is 'tensor<4xf32>', but the tile that its sharding cuts of its dist.global_type is 'tensor<3xf32>'}}
func.func @tile_of_whole(%a: tensor<4xf32> {dist.global_type = tensor<10xf32>, dist.sharding = #dist.sharding<@m, [{"x"}]>}) {
  return
}
