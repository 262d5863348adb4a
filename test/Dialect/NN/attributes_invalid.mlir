// RUN: cleave-opt %s -split-input-file -verify-diagnostics

// Attributes of arguments, results and operations are checked by kind, name
// and type.

// expected-error @below {{'nn.view' is {shape = array<i64: 12>}; expected #nn.view<shape = [...], view = [...]>}}
func.func @dictionary(%w: tensor<3x4xf32> {nn.view = {shape = array<i64: 12>}}) { return }

// -----

// expected-error @below {{'nn.view' is #nn.view<shape = [12], view = [3, 4]> with 12 elements; expected the 15 of 'tensor<3x5xf32>'}}
func.func @elements(%w: tensor<3x5xf32> {nn.view = #nn.view<shape = [12], view = [3, 4]>}) { return }

// -----

// expected-error @below {{#nn.view has shape = [12] and view = [3, 5]; expected as many elements in both}}
func.func @shapes(%w: tensor<3x5xf32> {nn.view = #nn.view<shape = [12], view = [3, 5]>}) { return }

// -----

// expected-error @below {{#nn.view has permutation = [0, 2]; expected each dimension of view = [3, 4] once}}
func.func @permutation(%w: tensor<3x4xf32> {nn.view = #nn.view<shape = [12], view = [3, 4], permutation = [0, 2]>}) { return }

// -----

// The view describes the whole tensor, of which a rank holds a tile.
func.func @tile(%w: tensor<3x2xf32> {dist.global_type = tensor<3x4xf32>, nn.view = #nn.view<shape = [12], view = [3, 4]>}) { return }

// -----

// expected-error @below {{#nn.data of file "w" has offset = -1 and length = 24; expected neither below 0}}
func.func @data(%w: tensor<6xf32> {nn.data = #nn.data<file = "w", offset = -1, length = 24, dtype = "f32">}) { return }

// -----

// expected-error @below {{'nn.tied' is ["v"]; expected a list of #nn.tied<name = ..., transposed = ...>}}
func.func @tied(%w: tensor<6xf32> {nn.tied = ["v"]}) { return }

// -----

// expected-error @below {{'nn.parts' is []; expected a list of #nn.part<name = ...> with at least one}}
func.func @parts(%w: tensor<6xf32> {nn.parts = []}) { return }

// -----

// expected-error @below {{'nn.init' is "normal"; expected #nn.init<zeros>}}
func.func @init(%w: tensor<6xf32> {nn.init = "normal"}) { return }

// -----

// expected-error @below {{to be one of: zeros, constant, normal, uniform}}
// expected-error @below {{failed to parse}}
func.func @kind(%w: tensor<6xf32> {nn.init = #nn.init<ones>}) { return }

// -----

// expected-error @below {{'nn.batch_dim' is 2; expected a dimension of 'tensor<4x6xf32>', or -1}}
func.func @batch(%x: tensor<4x6xf32> {nn.batch_dim = 2 : i64}) { return }

// -----

// expected-error @below {{'nn.frozen' is true; expected a unit}}
func.func @frozen(%x: tensor<4x6xf32> {nn.frozen = true}) { return }

// -----

// expected-error @below {{'nn.whole_call' is 1 : i64; expected a unit}}
func.func @result(%x: tensor<4xf32>) -> (tensor<4xf32> {nn.whole_call = 1}) {
  return %x : tensor<4xf32>
}

// -----

// expected-error @below {{unknown attribute 'nn.batchdim' on an argument or result; expected one of nn.name, nn.role,}}
func.func @misspelt(%x: tensor<4x6xf32> {nn.batchdim = 0 : i64}) { return }

// -----

// expected-error @below {{unknown attribute 'nn.kernels' on an operation; expected one of nn.shard,}}
func.func @operation() attributes {nn.kernels} { return }

// -----

// expected-error @below {{'nn.extent' is "8"; expected an i64}}
func.func @extent() attributes {nn.kernel, nn.extent = "8"} { return }

// -----

// expected-error @below {{'nn.shard' is [{dims = [], match = "w"}]; expected a list of #nn.shard<match = ..., dims = [...]>}}
module attributes {nn.shard = [{match = "w", dims = []}]} {}

// -----

// expected-error @below {{#nn.router of "gate" has slots_per_token = 2, capacity = -1 and capacity_of = 0; expected none below 0}}
func.func @router(%c: tensor<4xi64> {nn.router = #nn.router<name = "gate", counts = chosen, slots_per_token = 2, capacity = -1>}) { return }

// -----

// expected-error @below {{#nn.lookup of table "wte" has 1 offsets, 2 sizes and 2 strides; expected equal numbers}}
func.func @lookup(%x: tensor<2x3xi64> {nn.lookups = [#nn.lookup<offsets = [0], sizes = [2, 3], strides = [1, 1], rows = 200, table = "wte">]}) { return }

// -----

// expected-error @below {{#nn.shard of ".*head" has dims = ["x"]; expected a list of #dist.axes<...>}}
module attributes {nn.shard = [#nn.shard<match = ".*head", dims = ["x"]>]} {}

// -----

// expected-error @below {{#nn.shard of ".*head" has 1 dims; expected one for each dimension of view = [2, 3]}}
module attributes {nn.shard = [#nn.shard<match = ".*head", dims = [#dist.axes<{}>], view = [2, 3]>]} {}

// -----

// expected-error @below {{'nn.view' is #nn.view<shape = [9], view = [9, 1]> and gives the shape [9, 1]; expected that of 'tensor<3x3xf32>'}}
func.func @view_shape(%w: tensor<3x3xf32> {nn.view = #nn.view<shape = [9], view = [9, 1]>}) { return }

// -----

// expected-error @below {{'nn.view' is #nn.view<shape = [12], view = [3, 4], permutation = [1, 0]> and gives the shape [4, 3]; expected that of 'tensor<3x4xf32>'}}
func.func @permuted(%w: tensor<3x4xf32> {nn.view = #nn.view<shape = [12], view = [3, 4], permutation = [1, 0]>}) { return }

// -----

// expected-error @below {{'nn.data' is #nn.data<file = "w.bin", offset = 0, length = 10, dtype = "f32">; expected 36 bytes for 'tensor<3x3xf32>'}}
func.func @length(%w: tensor<3x3xf32> {nn.data = #nn.data<file = "w.bin", offset = 0, length = 10, dtype = "f32">}) { return }

// -----

// expected-error @below {{#nn.data of file "w.bin" has dtype = "q9"; expected one of f64, f32, bf16, f16, i64, i32, i16, i8, u64, u32, u16, u8, i1, bool}}
func.func @dtype(%w: tensor<3x3xf32> {nn.data = #nn.data<file = "w.bin", offset = 0, length = 36, dtype = "q9">}) { return }

// -----

// The message names the argument, since all of them may be on one line.
// expected-error @below {{argument 1 of @view_of_scalar: 'nn.view' is #nn.view<shape = [12], view = [3, 4]>; expected it on a tensor of known sizes, not on 'f32'}}
func.func @view_of_scalar(%x: tensor<2xf32>, %w: f32 {nn.view = #nn.view<shape = [12], view = [3, 4]>}) { return }

// -----

// expected-error @below {{argument 0 of @view_unranked: 'nn.view' is #nn.view<shape = [12], view = [3, 4]>; expected it on a tensor of known sizes, not on 'tensor<*xf32>'}}
func.func @view_unranked(%w: tensor<*xf32> {nn.view = #nn.view<shape = [12], view = [3, 4]>}) { return }

// -----

// expected-error @below {{result 1 of @batch_of_scalar: 'nn.batch_dim' is 0 : i64; expected it on a tensor of known rank, not on 'f32'}}
func.func private @batch_of_scalar() -> (tensor<2xf32>, f32 {nn.batch_dim = 0 : i64})

// -----

// expected-error @below {{#nn.lookup of table "wte" has offset -1, size 3 and stride 1 in dimension 0; expected an offset of at least 0, and a size and a stride of at least 1}}
func.func @lookup_offset(%x: tensor<3xi64> {nn.lookups = [#nn.lookup<offsets = [-1], sizes = [3], strides = [1], rows = 200, table = "wte">]}) { return }

// -----

// expected-error @below {{#nn.lookup of table "wte" has offset 1, size 2 and stride -1 in dimension 0}}
func.func @lookup_stride(%x: tensor<3xi64> {nn.lookups = [#nn.lookup<offsets = [1], sizes = [2], strides = [-1], rows = 200, table = "wte">]}) { return }

// -----

// expected-error @below {{#nn.lookup of table "wte" has rows = 200 and bits = 1000; expected at least 1 row and 0 to 64 bits}}
func.func @lookup_bits(%x: tensor<3xi64> {nn.lookups = [#nn.lookup<offsets = [0], sizes = [3], strides = [1], rows = 200, table = "wte", bits = 1000>]}) { return }

// -----

// expected-error @below {{argument 0 of @lookup_narrow: 'nn.lookups' has #nn.lookup<offsets = [0], sizes = [3], strides = [1], rows = 200, table = "wte", bits = 40> with bits = 40; expected at most the 32 of an element of 'tensor<3xi32>'}}
func.func @lookup_narrow(%x: tensor<3xi32> {nn.lookups = [#nn.lookup<offsets = [0], sizes = [3], strides = [1], rows = 200, table = "wte", bits = 40>]}) { return }

// -----

// expected-error @below {{argument 0 of @lookup_end: 'nn.lookups' has #nn.lookup<offsets = [1], sizes = [2], strides = [2], rows = 200, table = "wte">, which ends outside dimension 0; expected a slice of 'tensor<3xi64>'}}
func.func @lookup_end(%x: tensor<3xi64> {nn.lookups = [#nn.lookup<offsets = [1], sizes = [2], strides = [2], rows = 200, table = "wte">]}) { return }

// -----

// expected-error @below {{'nn.lookups' has #nn.lookup<offsets = [0], sizes = [3], strides = [1], rows = 200, table = "wte"> with 1 dimensions; expected the 2 of 'tensor<3x4xi64>'}}
func.func @lookup_rank(%x: tensor<3x4xi64> {nn.lookups = [#nn.lookup<offsets = [0], sizes = [3], strides = [1], rows = 200, table = "wte">]}) { return }

// -----

// expected-error @below {{argument 0 of @vocabulary: 'nn.vocabulary' is -3 : i64; expected an i64, at least 1}}
func.func @vocabulary(%x: tensor<3xi64> {nn.vocabulary = -3 : i64}) { return }

// -----

// expected-error @below {{argument 0 of @vocabulary_of_floats: 'nn.vocabulary' is 3 : i64; expected it on integers, not on 'tensor<3xf32>'}}
func.func @vocabulary_of_floats(%x: tensor<3xf32> {nn.vocabulary = 3 : i64}) { return }

// -----

// expected-error @below {{#nn.data of file "w" has offset = 9223372036854775807 and length = 24; expected an end that fits into 64 bits}}
func.func @data_end(%w: tensor<6xf32> {nn.data = #nn.data<file = "w", offset = 9223372036854775807, length = 24, dtype = "f32">}) { return }

// -----

// expected-error @below {{#nn.init<uniform> has a = 2.000000e+00 and b = 1.000000e+00; expected a, the lower bound, to be at most b, the upper bound}}
func.func @uniform(%w: tensor<6xf32> {nn.init = #nn.init<uniform, a = 2.0 : f64>}) { return }

// -----

// expected-error @below {{#nn.init<normal> has a = 0.000000e+00 and b = -1.000000e+00; expected b, the standard deviation, to be at least 0}}
func.func @normal(%w: tensor<6xf32> {nn.init = #nn.init<normal, b = -1.0 : f64>}) { return }

// -----

// expected-error @below {{and b = 1.000000e+00; expected finite numbers}}
func.func @constant(%w: tensor<6xf32> {nn.init = #nn.init<constant, a = 0x7FF0000000000000 : f64>}) { return }

// -----

// expected-error @below {{#nn.tied has name = ""; expected the name of a tensor of the model file}}
func.func @tied_name(%w: tensor<6xf32> {nn.tied = [#nn.tied<name = "", transposed = false>]}) { return }

// -----

// expected-error @below {{#nn.part has name = ""; expected the name of a tensor of the model file}}
func.func @part_name(%w: tensor<6xf32> {nn.parts = [#nn.part<name = "">]}) { return }

// -----

// expected-error @below {{'nn.extent' is -5 : i64; expected an i64, at least 0}}
func.func @negative_extent() attributes {nn.kernel, nn.extent = -5 : i64} { return }

// -----

// expected-error @below {{'nn.grain' is 0 : i64; expected an i64, at least 1}}
func.func @grain() attributes {nn.kernel, nn.grain = 0 : i64} { return }

// -----

// expected-error @below {{'nn.inplace' is [0, 1]; expected pairs of one of 1 results and one of 1 arguments}}
func.func private @inplace(tensor<3xf32>) -> tensor<3xf32> attributes {nn.kernel, nn.inplace = array<i64: 0, 1>}

// -----

// expected-error @below {{'nn.inplace' is [0, 0, 0]; expected pairs (result, operand)}}
func.func private @pairs(tensor<3xf32>) -> tensor<3xf32> attributes {nn.kernel, nn.inplace = array<i64: 0, 0, 0>}

// -----

// expected-error @below {{'nn.align' is array<i64: 3, 4>; expected an array<i64> of powers of 2}}
func.func private @align(tensor<3xf32>) -> tensor<3xf32> attributes {nn.kernel, nn.align = array<i64: 3, 4>}

// -----

// expected-error @below {{'nn.align' is [4]; expected one alignment for each of 1 arguments and 1 results}}
func.func private @alignments(tensor<3xf32>) -> tensor<3xf32> attributes {nn.kernel, nn.align = array<i64: 4>}
