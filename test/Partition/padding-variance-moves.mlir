// RUN: cleave-opt %s -split-input-file -dist-verify-variance -verify-diagnostics

// Softmax of rows that were gathered and whose padding was not sliced off.
dist.mesh @m <["x"=4]>
func.func @not_cut(%a: tensor<5x3xf32> {dist.global_type = tensor<5x10xf32>, dist.sharding = #dist.sharding<@m, [{}, {"x"}]>}) -> tensor<5x10xf32> {
  %0 = dist.all_gather %a dims [1] over @m {"x"} purpose activation : (tensor<5x3xf32>) -> tensor<5x12xf32>
  // expected-error @below {{reads all of dimension 1 of operand 0 of type 'tensor<5x12xf32>', of 10 elements, which ends in padding; expected a dimension without: gathered and cut to 10 elements (nn.slice)}}
  %1 = nn.softmax %0 : tensor<5x12xf32>
  %2 = nn.slice %1 [0, 0] [5, 10] [1, 1] : tensor<5x12xf32> -> tensor<5x10xf32>
  return %2 : tensor<5x10xf32>
}

// -----

// The padding is sliced off first.
dist.mesh @m <["x"=4]>
func.func @cut(%a: tensor<5x3xf32> {dist.global_type = tensor<5x10xf32>, dist.sharding = #dist.sharding<@m, [{}, {"x"}]>}) -> tensor<5x10xf32> {
  %0 = dist.all_gather %a dims [1] over @m {"x"} purpose activation : (tensor<5x3xf32>) -> tensor<5x12xf32>
  %1 = nn.slice %0 [0, 0] [5, 10] [1, 1] : tensor<5x12xf32> -> tensor<5x10xf32>
  %2 = nn.softmax %1 : tensor<5x10xf32>
  return %2 : tensor<5x10xf32>
}

// -----

// A table that ends in padding is read by indices that may point there.
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

// A window over more elements than the dimension has.
dist.mesh @m <["x"=4]>
func.func @window(%a: tensor<3xf32> {dist.global_type = tensor<10xf32>, dist.sharding = #dist.sharding<@m, [{"x"}]>})
    -> (tensor<3xf32> {dist.global_type = tensor<10xf32>, dist.sharding = #dist.sharding<@m, [{"x"}]>}) {
  // expected-error @below {{takes windows of dimension 0 as one of 11 elements; expected 10 elements split by axis "x", as the operand has}}
  %0 = dist.window %a dim 0 size 11 base -1 step 3 stride 1 whole 10 over @m {"x"} purpose activation : (tensor<3xf32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}

// -----

// A concatenation would leave the padding between elements.
dist.mesh @m <["x"=4]>
func.func @behind(%a: tensor<5x3xf32> {dist.global_type = tensor<5x10xf32>, dist.sharding = #dist.sharding<@m, [{}, {"x"}]>}) -> tensor<5xf32> {
  %0 = dist.all_gather %a dims [1] over @m {"x"} purpose activation : (tensor<5x3xf32>) -> tensor<5x12xf32>
  // expected-error @below {{moves elements along dimension 1 of type 'tensor<5x12xf32>', of 10 elements, which ends in padding; expected a dimension without: cut (nn.slice), or a window of it}}
  %1 = nn.concat %0, %0 dim = 1 : tensor<5x12xf32>, tensor<5x12xf32> -> tensor<5x24xf32>
  %2 = nn.reduce sum %1 dims = [1] : tensor<5x24xf32> -> tensor<5xf32>
  return %2 : tensor<5xf32>
}

// -----

// A slice from the second element to the last.
dist.mesh @m <["x"=4]>
func.func @within(%a: tensor<5x3xf32> {dist.global_type = tensor<5x10xf32>, dist.sharding = #dist.sharding<@m, [{}, {"x"}]>}) -> tensor<5xf32> {
  %0 = dist.all_gather %a dims [1] over @m {"x"} purpose activation : (tensor<5x3xf32>) -> tensor<5x12xf32>
  %1 = nn.slice %0 [0, 1] [5, 9] [1, 1] : tensor<5x12xf32> -> tensor<5x9xf32>
  %2 = nn.reduce sum %1 dims = [1] : tensor<5x9xf32> -> tensor<5xf32>
  return %2 : tensor<5xf32>
}

// -----

// The slice takes one element too many.
dist.mesh @m <["x"=4]>
func.func @beyond(%a: tensor<5x3xf32> {dist.global_type = tensor<5x10xf32>, dist.sharding = #dist.sharding<@m, [{}, {"x"}]>}) -> tensor<5xf32> {
  %0 = dist.all_gather %a dims [1] over @m {"x"} purpose activation : (tensor<5x3xf32>) -> tensor<5x12xf32>
  %1 = nn.slice %0 [0, 1] [5, 11] [1, 1] : tensor<5x12xf32> -> tensor<5x11xf32>
  // expected-error @below {{combines (sum) along dimension 1 of operand 0 of type 'tensor<5x11xf32>', of 9 elements, whose last tiles end in padding of any content}}
  %2 = nn.reduce sum %1 dims = [1] : tensor<5x11xf32> -> tensor<5xf32>
  return %2 : tensor<5xf32>
}

// -----

// A slice with stride 3: the elements 0, 3, 6, 9.
dist.mesh @m <["x"=4]>
func.func @every_third(%a: tensor<5x3xf32> {dist.global_type = tensor<5x10xf32>, dist.sharding = #dist.sharding<@m, [{}, {"x"}]>}) -> tensor<5xf32> {
  %0 = dist.all_gather %a dims [1] over @m {"x"} purpose activation : (tensor<5x3xf32>) -> tensor<5x12xf32>
  %1 = nn.slice %0 [0, 0] [5, 4] [1, 3] : tensor<5x12xf32> -> tensor<5x4xf32>
  %2 = nn.reduce sum %1 dims = [1] : tensor<5x4xf32> -> tensor<5xf32>
  return %2 : tensor<5xf32>
}

// -----

// A reversed slice that begins at the last element.
dist.mesh @m <["x"=4]>
func.func @backwards(%a: tensor<5x3xf32> {dist.global_type = tensor<5x10xf32>, dist.sharding = #dist.sharding<@m, [{}, {"x"}]>}) -> tensor<5xf32> {
  %0 = dist.all_gather %a dims [1] over @m {"x"} purpose activation : (tensor<5x3xf32>) -> tensor<5x12xf32>
  %1 = nn.slice %0 [0, 9] [5, 10] [1, -1] : tensor<5x12xf32> -> tensor<5x10xf32>
  %2 = nn.reduce sum %1 dims = [1] : tensor<5x10xf32> -> tensor<5xf32>
  return %2 : tensor<5xf32>
}

// -----

// A reversed slice that begins in the padding.
dist.mesh @m <["x"=4]>
func.func @backwards_from_padding(%a: tensor<5x3xf32> {dist.global_type = tensor<5x10xf32>, dist.sharding = #dist.sharding<@m, [{}, {"x"}]>}) -> tensor<5xf32> {
  %0 = dist.all_gather %a dims [1] over @m {"x"} purpose activation : (tensor<5x3xf32>) -> tensor<5x12xf32>
  // expected-error @below {{moves elements along dimension 1 of type 'tensor<5x12xf32>', of 10 elements, which ends in padding; expected a slice that begins within the 10 elements}}
  %1 = nn.slice %0 [0, 11] [5, 12] [1, -1] : tensor<5x12xf32> -> tensor<5x12xf32>
  %2 = nn.reduce sum %1 dims = [1] : tensor<5x12xf32> -> tensor<5xf32>
  return %2 : tensor<5xf32>
}

// -----

// A reshape would leave padding between the rows.
dist.mesh @m <["x"=4]>
func.func @merged(%a: tensor<5x3xf32> {dist.global_type = tensor<5x10xf32>, dist.sharding = #dist.sharding<@m, [{}, {"x"}]>}) -> tensor<f32> {
  %0 = dist.all_gather %a dims [1] over @m {"x"} purpose activation : (tensor<5x3xf32>) -> tensor<5x12xf32>
  // expected-error @below {{merges or divides dimension 1 of type 'tensor<5x12xf32>', of 10 elements, which ends in padding; expected a dimension without: gathered and cut to 10 elements (nn.slice)}}
  %1 = nn.reshape %0 : tensor<5x12xf32> -> tensor<60xf32>
  %2 = nn.reduce sum %1 dims = [0] : tensor<60xf32> -> tensor<f32>
  return %2 : tensor<f32>
}

// -----

// Padding is added before the elements of a tile.
dist.mesh @m <["x"=4]>
func.func @before(%a: tensor<6xf32> {dist.global_type = tensor<6xf32>, dist.sharding = #dist.sharding<@m, [{}], partial = sum{"x"}>}) -> (tensor<2xf32> {dist.global_type = tensor<6xf32>, dist.sharding = #dist.sharding<@m, [{"x"}]>}) {
  // expected-error @below {{tiles are padded at their ends; expected nn.pad with low = 0}}
  %2 = nn.pad %a low = [2] high = [0] value = 0.000000e+00 {dist.tile_padding} : tensor<6xf32> -> tensor<8xf32>
  %3 = dist.reduce_scatter sum %2 dims [0] over @m {"x"} purpose activation : (tensor<8xf32>) -> tensor<2xf32>
  return %3 : tensor<2xf32>
}
