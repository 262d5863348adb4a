// RUN: cleave-opt %s -split-input-file -dist-verify-variance -verify-diagnostics

// A correct program passes.
dist.mesh @m <["d"=2, "t"=2]>
func.func @valid(%x: tensor<2x6xf32> {dist.sharding = #dist.sharding<@m, [{"d"}, {}]>},
                 %w: tensor<6x5xf32> {dist.sharding = #dist.sharding<@m, [{}, {"t"}]>})
    -> (tensor<f32> {dist.sharding = #dist.sharding<@m, [], partial = sum{"d"}>}) {
  %0 = nn.einsum "bh,hf->bf" %x, %w : tensor<2x6xf32>, tensor<6x5xf32> -> tensor<2x5xf32>
  %1 = math.exp %0 : tensor<2x5xf32>
  %2 = nn.reduce sum %1 dims = [0, 1] : tensor<2x5xf32> -> tensor<f32>
  %3 = dist.all_reduce sum %2 over @m {"t"} purpose loss : tensor<f32>
  return %3 : tensor<f32>
}

// -----

// A missing all-reduce.
dist.mesh @m <["t"=2]>
func.func @dropped(%x: tensor<4x3xf32> {dist.sharding = #dist.sharding<@m, [{}, {"t"}]>}) -> tensor<4xf32> {
  // expected-note @below {{the partial value is this one}}
  %0 = nn.reduce sum %x dims = [1] : tensor<4x3xf32> -> tensor<4xf32>
  // expected-error @below {{reads operand 0 of type 'tensor<4xf32>', which is partial (sum) over axis "t", and is not linear in it; reduce it first}}
  %1 = math.exp %0 : tensor<4xf32>
  return %1 : tensor<4xf32>
}

// -----

// A bias is added to the partial sum on every rank.
dist.mesh @m <["t"=2]>
func.func @bias_twice(%x: tensor<4x3xf32> {dist.sharding = #dist.sharding<@m, [{}, {"t"}]>}, %b: tensor<4xf32>) -> tensor<4xf32> {
  // expected-note @below {{the partial value is this one}}
  %0 = nn.reduce sum %x dims = [1] : tensor<4x3xf32> -> tensor<4xf32>
  // expected-error @below {{combines operand 0 of type 'tensor<4xf32>', which is partial (sum) over axis "t", with operand 1, which is invariant}}
  %1 = arith.addf %0, %b : tensor<4xf32>
  %2 = dist.all_reduce sum %1 over @m {"t"} purpose activation : tensor<4xf32>
  return %2 : tensor<4xf32>
}

// -----

// An all-reduce over ranks that hold the same value.
dist.mesh @m <["t"=2]>
func.func @counted_twice(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{reduces operand 0 of type 'tensor<4xf32>' by sum over axis "t", over which it is invariant}}
  %0 = dist.all_reduce sum %x over @m {"t"} purpose activation : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// A select between two partial minima is a partial minimum.
dist.mesh @m <["t"=2]>
func.func @chosen(%x: tensor<4xf32> {dist.sharding = #dist.sharding<@m, [{}], partial = min{"t"}>},
                  %y: tensor<4xf32> {dist.sharding = #dist.sharding<@m, [{}], partial = min{"t"}>}, %c: tensor<4xi1>)
    -> (tensor<4xf32> {dist.sharding = #dist.sharding<@m, [{}], partial = min{"t"}>}) {
  %0 = arith.select %c, %x, %y : tensor<4xi1>, tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// A select whose condition differs between ranks is not.
dist.mesh @m <["t"=2]>
// expected-note @below {{the partial value is this one}}
func.func @chosen_apart(%x: tensor<4xf32> {dist.sharding = #dist.sharding<@m, [{}], partial = min{"t"}>},
                        %y: tensor<4xf32> {dist.sharding = #dist.sharding<@m, [{}], partial = min{"t"}>}, %c: tensor<4xi1> {dist.sharding = #dist.sharding<@m, [{"t"}]>})
    -> (tensor<4xf32> {dist.sharding = #dist.sharding<@m, [{}], partial = min{"t"}>}) {
  // expected-error @below {{reads operand 1 of type 'tensor<4xf32>', which is partial (min) over axis "t", and is not linear in it}}
  %0 = arith.select %c, %x, %y : tensor<4xi1>, tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// A partial maximum is reduced by a sum.
dist.mesh @m <["t"=2]>
func.func @kinds(%x: tensor<4x3xf32> {dist.sharding = #dist.sharding<@m, [{}, {"t"}]>}) -> tensor<4xf32> {
  %0 = nn.reduce max %x dims = [1] : tensor<4x3xf32> -> tensor<4xf32>
  // expected-error @below {{reduces operand 0 of type 'tensor<4xf32>' by sum over axis "t", over which it is partial (max)}}
  %1 = dist.all_reduce sum %0 over @m {"t"} purpose activation : tensor<4xf32>
  return %1 : tensor<4xf32>
}

// -----

// One operand is split on rows, the other on columns.
dist.mesh @m <["t"=2]>
func.func @swapped(%x: tensor<3x3xf32> {dist.sharding = #dist.sharding<@m, [{"t"}, {}]>},
                   %y: tensor<3x3xf32> {dist.sharding = #dist.sharding<@m, [{}, {"t"}]>})
    -> (tensor<3x3xf32> {dist.sharding = #dist.sharding<@m, [{"t"}, {}]>}) {
  // expected-error @below {{has operands split on different dimensions by axis "t": operand 1 is split on dimension 1}}
  %0 = arith.addf %x, %y : tensor<3x3xf32>
  return %0 : tensor<3x3xf32>
}

// -----

// The all-reduce is over the wrong axis.
dist.mesh @m <["d"=2, "t"=2]>
func.func @wrong_group(%x: tensor<4x3xf32> {dist.sharding = #dist.sharding<@m, [{}, {"t"}]>}) -> tensor<4xf32> {
  %0 = nn.reduce sum %x dims = [1] : tensor<4x3xf32> -> tensor<4xf32>
  // expected-error @below {{reduces operand 0 of type 'tensor<4xf32>' by sum over axis "d", over which it is invariant}}
  %1 = dist.all_reduce sum %0 over @m {"d"} purpose activation : tensor<4xf32>
  return %1 : tensor<4xf32>
}

// -----

// The result's sharding differs from the declared one.
dist.mesh @m <["t"=2]>
// expected-error @below {{result 0 of @result is split on dimension 0 over axis "t", its sharding says invariant}}
func.func @result(%x: tensor<4xf32> {dist.sharding = #dist.sharding<@m, [{"t"}]>}) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

// -----

// Softmax over a split dimension.
dist.mesh @m <["t"=2]>
func.func @whole(%x: tensor<4x3xf32> {dist.sharding = #dist.sharding<@m, [{}, {"t"}]>})
    -> (tensor<4x3xf32> {dist.sharding = #dist.sharding<@m, [{}, {"t"}]>}) {
  // expected-error @below {{needs a dimension whole that is split by axis "t"}}
  %0 = nn.softmax %x : tensor<4x3xf32>
  return %0 : tensor<4x3xf32>
}

// -----

// A broadcast value may count as a tile; its sum may count as a partial sum.
dist.mesh @m <["t"=2]>
func.func @repeated(%s: tensor<f32>) -> (tensor<3xf32> {dist.sharding = #dist.sharding<@m, [{"t"}]>}, tensor<f32>) {
  %0 = nn.broadcast %s dims = [] : tensor<f32> -> tensor<3xf32>
  %1 = math.exp %0 : tensor<3xf32>
  %2 = nn.reduce sum %1 dims = [0] : tensor<3xf32> -> tensor<f32>
  %3 = dist.all_reduce sum %2 over @m {"t"} purpose loss : tensor<f32>
  return %1, %3 : tensor<3xf32>, tensor<f32>
}

// -----

// Tiles with one sample each: a reshape keeps track of the split dimension.
dist.mesh @m <["d"=4]>
func.func @one_sample(%x: tensor<1x8x2xf32> {dist.sharding = #dist.sharding<@m, [{"d"}, {}, {}]>})
    -> (tensor<2xf32> {dist.sharding = #dist.sharding<@m, [{}], partial = sum{"d"}>},
        tensor<8x2xf32> {dist.sharding = #dist.sharding<@m, [{"d"}, {}]>}) {
  %0 = nn.reshape %x : tensor<1x8x2xf32> -> tensor<1x8x1x2xf32>
  %1 = nn.reduce sum %0 dims = [0, 1, 2] : tensor<1x8x1x2xf32> -> tensor<2xf32>
  %2 = nn.reshape %0 : tensor<1x8x1x2xf32> -> tensor<8x2xf32>
  return %1, %2 : tensor<2xf32>, tensor<8x2xf32>
}

// -----

dist.mesh @m <["d"=4]>
func.func @one_sample_dropped(%x: tensor<1x8x2xf32> {dist.sharding = #dist.sharding<@m, [{"d"}, {}, {}]>}) -> tensor<2xf32> {
  %0 = nn.reshape %x : tensor<1x8x2xf32> -> tensor<1x8x1x2xf32>
  // expected-note @below {{the partial value is this one}}
  %1 = nn.reduce sum %0 dims = [0, 1, 2] : tensor<1x8x1x2xf32> -> tensor<2xf32>
  // expected-error @below {{reads operand 0 of type 'tensor<2xf32>', which is partial (sum) over axis "d", and is not linear in it; reduce it first}}
  %2 = math.exp %1 : tensor<2xf32>
  return %2 : tensor<2xf32>
}

// -----

// Tiles with one token each may be split on either dimension of size 1. A reading
// is ruled out if an operation needs that dimension whole.
dist.mesh @m <["d"=2]>
func.func @one_token_padded(%x: tensor<1x4xf32> {dist.sharding = #dist.sharding<@m, [{"d"}, {}]>})
    -> (tensor<3x4xf32> {dist.sharding = #dist.sharding<@m, [{}, {}], partial = sum{"d"}>}) {
  %0 = nn.reshape %x : tensor<1x4xf32> -> tensor<1x1x4xf32>
  %1 = nn.pad %0 low = [0, 2, 0] high = [0, 0, 0] value = 0.0 : tensor<1x1x4xf32> -> tensor<1x3x4xf32>
  %2 = nn.reduce sum %1 dims = [0] : tensor<1x3x4xf32> -> tensor<3x4xf32>
  return %2 : tensor<3x4xf32>
}

// -----

// A product contracts one of the two dimensions that may be split and keeps the
// other: both readings are valid.
dist.mesh @m <["d"=2]>
func.func @one_token_product(%x: tensor<1x1x7xf32> {dist.sharding = #dist.sharding<@m, [{"d"}, {}, {}]>}, %w: tensor<7x4xf32>)
    -> (tensor<4xf32> {dist.sharding = #dist.sharding<@m, [{}], partial = sum{"d"}>},
        tensor<1x4xf32> {dist.sharding = #dist.sharding<@m, [{"d"}, {}]>}) {
  %0 = nn.reshape %x : tensor<1x1x7xf32> -> tensor<1x7xf32>
  %1 = nn.einsum "ac,cb->ab" %0, %w : tensor<1x7xf32>, tensor<7x4xf32> -> tensor<1x4xf32>
  %2 = nn.reduce sum %1 dims = [0] : tensor<1x4xf32> -> tensor<4xf32>
  return %2, %1 : tensor<4xf32>, tensor<1x4xf32>
}

// -----

dist.mesh @m <["d"=2]>
func.func @one_token_dropped(%x: tensor<1x1x7xf32> {dist.sharding = #dist.sharding<@m, [{"d"}, {}, {}]>}, %w: tensor<7x4xf32>) -> tensor<4xf32> {
  %0 = nn.reshape %x : tensor<1x1x7xf32> -> tensor<1x7xf32>
  %1 = nn.einsum "ac,cb->ab" %0, %w : tensor<1x7xf32>, tensor<7x4xf32> -> tensor<1x4xf32>
  // expected-error @below {{result 0 of @one_token_dropped is partial (sum) over axis "d", its sharding says invariant}}
  %2 = nn.reduce sum %1 dims = [0] : tensor<1x4xf32> -> tensor<4xf32>
  return %2 : tensor<4xf32>
}

// -----

// A value that all ranks hold counts as a partial maximum, but not as a partial sum.
dist.mesh @m <["t"=2]>
func.func @candidates(%x: tensor<4xf32>) -> (tensor<4xf32> {dist.sharding = #dist.sharding<@m, [{}], partial = max{"t"}>}) {
  return %x : tensor<4xf32>
}

// -----

dist.mesh @m <["t"=2]>
// expected-error @below {{result 0 of @addends is invariant over axis "t", its sharding says partial (sum)}}
func.func @addends(%x: tensor<4xf32>) -> (tensor<4xf32> {dist.sharding = #dist.sharding<@m, [{}], partial = sum{"t"}>}) {
  return %x : tensor<4xf32>
}

// -----

// A sub-axis is tracked like an axis.
dist.mesh @m <["t"=4]>
func.func @sub_axis(%x: tensor<4x3xf32> {dist.sharding = #dist.sharding<@m, [{}, {"t":(1)2}], partial = sum{"t":(2)2}>}) -> tensor<4xf32> {
  %0 = nn.reduce sum %x dims = [1] : tensor<4x3xf32> -> tensor<4xf32>
  // expected-note @below {{the partial value is this one}}
  %1 = dist.all_reduce sum %0 over @m {"t":(1)2} purpose activation : tensor<4xf32>
  // expected-error @below {{reads operand 0 of type 'tensor<4xf32>', which is partial (sum) over axis "t":(2)2, and is not linear in it; reduce it first}}
  %2 = math.exp %1 : tensor<4xf32>
  return %2 : tensor<4xf32>
}

// -----

// A reshape of tiles: the split dimension must be the major part of a dimension
// of the result.
dist.mesh @m <["t"=2]>
func.func @merged(%x: tensor<4x3xf32> {dist.sharding = #dist.sharding<@m, [{}, {"t"}]>})
    -> (tensor<12xf32> {dist.sharding = #dist.sharding<@m, [{"t"}]>}) {
  // expected-error @below {{needs a dimension whole that is split by axis "t": operand 0 is split on dimension 1}}
  %0 = nn.reshape %x : tensor<4x3xf32> -> tensor<12xf32>
  return %0 : tensor<12xf32>
}

// -----

// Channels are (group, channel within the group). If all filter values are equal, ranks
// that split the channels within a group compute equal tiles.
dist.mesh @m <["x"=4]>
func.func @one_filter(%dy: tensor<1x4x2xf32> {dist.sharding = #dist.sharding<@m, [{}, {"x":(1)2}, {}]>})
    -> (tensor<1x1x1xf32> {dist.sharding = #dist.sharding<@m, [{}, {"x"}, {}]>}) {
  %w = arith.constant dense<-2.0> : tensor<4x1x1xf32>
  %0 = nn.conv_input_grad %dy, %w strides = [2] dilations = [1] low = [0] high = [2] groups = 1 {nn.grouped}
      : tensor<1x4x2xf32>, tensor<4x1x1xf32> -> tensor<1x1x1xf32>
  return %0 : tensor<1x1x1xf32>
}

// -----

// Top-k of a broadcast scalar: the result may count as tiles of the whole result.
dist.mesh @m <["x"=2]>
func.func @one_number(%x: tensor<f32>) -> (tensor<6xf32> {dist.sharding = #dist.sharding<@m, [{}]>}) {
  %0 = nn.broadcast %x dims = [] : tensor<f32> -> tensor<3xf32>
  %values, %indices = nn.top_k %0 k = 3 {nn.candidates} : tensor<3xf32> -> tensor<3xf32>, tensor<3xi64>
  %1 = dist.all_gather %values dims [0] over @m {"x"} purpose activation : (tensor<3xf32>) -> tensor<6xf32>
  return %1 : tensor<6xf32>
}

// -----

// Padding with ones is not linear, so a partial sum may not be padded.
dist.mesh @m <["x"=2]>
// expected-note @below {{the partial value is this one}}
func.func @padded_with_ones(%a: tensor<4xf32> {dist.sharding = #dist.sharding<@m, [{}], partial = sum{"x"}>}) -> tensor<6xf32> {
  // expected-error @below {{reads operand 0 of type 'tensor<4xf32>', which is partial (sum) over axis "x", and is not linear in it; reduce it first}}
  %0 = nn.pad %a low = [1] high = [1] value = 1.0 : tensor<4xf32> -> tensor<6xf32>
  return %0 : tensor<6xf32>
}

// -----

// Padding a tile keeps its split.
dist.mesh @m <["x"=2]>
func.func @padded_tiles(%a: tensor<4x3xf32> {dist.sharding = #dist.sharding<@m, [{"x"}, {}]>}) -> tensor<3x5xf32> {
  %0 = nn.pad %a low = [0, 1] high = [0, 1] value = 1.0 : tensor<4x3xf32> -> tensor<4x5xf32>
  // expected-error @below {{needs a dimension whole that is split by axis "x"}}
  %1 = nn.slice %0 [0, 0] [3, 5] [1, 1] : tensor<4x5xf32> -> tensor<3x5xf32>
  return %1 : tensor<3x5xf32>
}

// -----

// A concatenation of two different constants is not a tile of a splat constant.
dist.mesh @m <["x"=2]>
func.func @two_constants() -> (tensor<4xf32> {dist.sharding = #dist.sharding<@m, [{"x"}]>}) {
  %a = arith.constant dense<1.0> : tensor<2xf32>
  %b = arith.constant dense<2.0> : tensor<2xf32>
  // expected-error @below {{result 0 of @two_constants is invariant over axis "x", its sharding says split on dimension 0}}
  %0 = nn.concat %a, %b dim = 0 : tensor<2xf32>, tensor<2xf32> -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// A splat constant may count as a tile, zeros as a partial sum, and a sum of ones as a partial sum.
dist.mesh @m <["x"=2]>
func.func @constants() -> (tensor<4xf32> {dist.sharding = #dist.sharding<@m, [{"x"}]>},
                           tensor<4xf32> {dist.sharding = #dist.sharding<@m, [{}], partial = sum{"x"}>},
                           tensor<f32> {dist.sharding = #dist.sharding<@m, [], partial = sum{"x"}>}) {
  %a = arith.constant dense<1.0> : tensor<4xf32>
  %b = arith.constant dense<0.0> : tensor<4xf32>
  %0 = nn.reduce sum %a dims = [0] : tensor<4xf32> -> tensor<f32>
  return %a, %b, %0 : tensor<4xf32>, tensor<4xf32>, tensor<f32>
}

// -----

dist.mesh @m <["x"=2]>
// expected-note @below {{the partial value is this one}}
func.func @ones_added(%a: tensor<4xf32> {dist.sharding = #dist.sharding<@m, [{}], partial = sum{"x"}>})
    -> (tensor<4xf32> {dist.sharding = #dist.sharding<@m, [{}], partial = sum{"x"}>}) {
  %b = arith.constant dense<1.0> : tensor<4xf32>
  // expected-error @below {{combines operand 0 of type 'tensor<4xf32>', which is partial (sum) over axis "x", with operand 1, which is invariant}}
  %0 = arith.addf %a, %b : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// Dropout of a constant is not a tile: each element has its own random number.
dist.mesh @m <["x"=2]>
func.func @dropped_constant(%seed: tensor<i64>, %step: tensor<i64>, %ids: tensor<4xi64>)
    -> (tensor<4x3xf32> {dist.sharding = #dist.sharding<@m, [{}, {"x"}]>}) {
  %c = arith.constant dense<1.0> : tensor<4x3xf32>
  // expected-error @below {{result 0 of @dropped_constant is invariant over axis "x", its sharding says split on dimension 1}}
  %0 = nn.dropout %c, %seed, %step, %ids p = 0.5 op_id = 3 global_shape = [4, 6] : tensor<4x3xf32>, tensor<4xi64>
  return %0 : tensor<4x3xf32>
}

// -----

// A tile is combined with a whole value of the same size.
dist.mesh @m <["x"=2]>
func.func @tile_and_whole(%a: tensor<4xf32> {dist.sharding = #dist.sharding<@m, [{"x"}]>}, %b: tensor<4xf32>)
    -> (tensor<4xf32> {dist.sharding = #dist.sharding<@m, [{"x"}]>}) {
  // expected-error @below {{combines tiles over axis "x" with operand 1 of type 'tensor<4xf32>', of which all ranks hold the same along dimension 0}}
  %0 = arith.addf %a, %b : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// The order of axes differs from the declared order.
dist.mesh @m <["x"=2, "y"=2]>
func.func @swapped_axes(%a: tensor<2x3xf32> {dist.sharding = #dist.sharding<@m, [{"x", "y"}, {}]>})
    -> (tensor<2x3xf32> {dist.sharding = #dist.sharding<@m, [{"y", "x"}, {}]>}) {
  // expected-error @below {{result 0 of @swapped_axes is split by axis "x" before axis "y", its sharding says the other way round}}
  %0 = math.exp %a : tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// -----

// The order of axes differs in the gather.
dist.mesh @m <["x"=2, "y"=2]>
func.func @gathered_in_another_order(%a: tensor<2x3xf32> {dist.sharding = #dist.sharding<@m, [{"x", "y"}, {}]>}) -> tensor<8x3xf32> {
  // expected-error @below {{gathers dimension 0 of operand 0 of type 'tensor<2x3xf32>' over axis "x", which splits it before axis "y", in the other order}}
  %0 = dist.all_gather %a dims [0] over @m {"y","x"} purpose activation : (tensor<2x3xf32>) -> tensor<8x3xf32>
  return %0 : tensor<8x3xf32>
}

// -----

// Only the major axis is gathered.
dist.mesh @m <["x"=2, "y"=2]>
func.func @gathered_major(%a: tensor<2x3xf32> {dist.sharding = #dist.sharding<@m, [{"x", "y"}, {}]>})
    -> (tensor<4x3xf32> {dist.sharding = #dist.sharding<@m, [{"y"}, {}]>}) {
  // expected-error @below {{gathers dimension 0 of operand 0 of type 'tensor<2x3xf32>' over axis "x", which splits it before axis "y", which goes on splitting it}}
  %0 = dist.all_gather %a dims [0] over @m {"x"} purpose activation : (tensor<2x3xf32>) -> tensor<4x3xf32>
  return %0 : tensor<4x3xf32>
}

// -----

// A reshape that merges dimensions puts the axes of the major one first; a
// slice appends its axis after those that already split the dimension.
dist.mesh @m <["x"=2, "y"=2, "z"=2]>
func.func @merged_order(%a: tensor<1x4x3xf32> {dist.sharding = #dist.sharding<@m, [{"x"}, {"y"}, {}]>})
    -> (tensor<2x3xf32> {dist.sharding = #dist.sharding<@m, [{"x", "y", "z"}, {}]>}) {
  %0 = nn.reshape %a : tensor<1x4x3xf32> -> tensor<4x3xf32>
  %1 = dist.slice %0 dim 0 over @m {"z"} : tensor<4x3xf32> -> tensor<2x3xf32>
  return %1 : tensor<2x3xf32>
}

// -----

dist.mesh @m <["x"=2, "y"=2]>
func.func @different_orders(%a: tensor<2xf32> {dist.sharding = #dist.sharding<@m, [{"x", "y"}]>},
                            %b: tensor<2xf32> {dist.sharding = #dist.sharding<@m, [{"y", "x"}]>})
    -> (tensor<2xf32> {dist.sharding = #dist.sharding<@m, [{"x", "y"}]>}) {
  // expected-error @below {{has operands split by axes "y" and "x" in different orders}}
  %0 = arith.addf %a, %b : tensor<2xf32>
  return %0 : tensor<2xf32>
}

// -----

// An exchange may produce partial sums: each element is in one rank's term.
dist.mesh @m <["t"=2]>
func.func @makes_addends(%x: tensor<2x3xf32> {dist.sharding = #dist.sharding<@m, [{"t"}, {}]>}) -> tensor<4x3xf32> {
  %0 = dist.exchange %x from [#dist.sharding<@m, [{"t"}, {}]>] to [#dist.sharding<@m, [{}, {}], partial = sum{"t"}>]
      of [tensor<4x3xf32>] over @m {"t"} purpose activation : (tensor<2x3xf32>) -> tensor<4x3xf32>
  %1 = dist.all_reduce sum %0 over @m {"t"} purpose activation : tensor<4x3xf32>
  return %1 : tensor<4x3xf32>
}

// -----

// Partial sums of an exchange are read as if they were complete.
dist.mesh @m <["t"=2]>
func.func @addends_read(%x: tensor<2x3xf32> {dist.sharding = #dist.sharding<@m, [{"t"}, {}]>}) -> tensor<4x3xf32> {
  // expected-note @below {{the partial value is this one}}
  %0 = dist.exchange %x from [#dist.sharding<@m, [{"t"}, {}]>] to [#dist.sharding<@m, [{}, {}], partial = sum{"t"}>]
      of [tensor<4x3xf32>] over @m {"t"} purpose activation : (tensor<2x3xf32>) -> tensor<4x3xf32>
  // expected-error @below {{reads operand 0 of type 'tensor<4x3xf32>', which is partial (sum) over axis "t", and is not linear in it; reduce it first}}
  %1 = math.exp %0 : tensor<4x3xf32>
  return %1 : tensor<4x3xf32>
}

// -----

// The exchange declares its operand a partial sum, but it is split.
dist.mesh @m <["t"=2]>
func.func @no_addends(%x: tensor<4x3xf32> {dist.sharding = #dist.sharding<@m, [{"t"}, {}]>}) -> tensor<4x3xf32> {
  // expected-error @below {{operand 0 is split on dimension 0 over axis "t", its `from` says partial (sum)}}
  %0 = dist.exchange %x from [#dist.sharding<@m, [{}, {}], partial = sum{"t"}>] to [#dist.sharding<@m, [{}, {}]>]
      of [tensor<4x3xf32>] over @m {"t"} purpose activation {rounds = 2 : i64} : (tensor<4x3xf32>) -> tensor<4x3xf32>
  return %0 : tensor<4x3xf32>
}

// -----

// An operand that only orders a rematerialization may have any sharding.
dist.mesh @m <["x"=2, "y"=2]>
func.func @waited_for(%a: tensor<2xf32> {dist.sharding = #dist.sharding<@m, [{"x", "y"}]>},
                      %b: tensor<2xf32> {dist.sharding = #dist.sharding<@m, [{"y", "x"}]>})
    -> (tensor<2xf32> {dist.sharding = #dist.sharding<@m, [{"x", "y"}]>}) {
  %0 = nn.rematerialize %a after %b : tensor<2xf32>, tensor<2xf32>
  return %0 : tensor<2xf32>
}
