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
