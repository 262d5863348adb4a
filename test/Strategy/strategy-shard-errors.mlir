// RUN: cleave-opt %s --split-input-file --strategy-shard --verify-diagnostics

// expected-error@+1 {{[[shard]] match = 'heads' matches none of the 1 parameters: 'head'}}
module attributes {nn.shard = [#nn.shard<match = "heads", dims = [#dist.axes<{}>]>]} {
  dist.mesh @mesh <["x"=2]>
  func.func @f(%w: tensor<6xf32> {nn.name = "head", nn.role = #nn.role<parameter>}) { return }
}

// -----

module attributes {nn.shard = [#nn.shard<match = "h.*", dims = [#dist.axes<{"x"}>]>, #nn.shard<match = ".*d", dims = [#dist.axes<{}>]>]} {
  dist.mesh @mesh <["x"=2]>
  // expected-error@+1 {{parameter 'head': [[shard]] match = 'h.*' asks for #dist.sharding<@mesh, [{"x"}]> and [[shard]] match = '.*d' for #dist.sharding<@mesh, [{}]>}}
  func.func @f(%w: tensor<6xf32> {nn.name = "head", nn.role = #nn.role<parameter>}) { return }
}

// -----

module attributes {nn.shard = [#nn.shard<match = "head", dims = [#dist.axes<{"x"}>, #dist.axes<{"x"}>]>]} {
  dist.mesh @mesh <["x"=2]>
  // expected-error@+1 {{parameter 'head', [[shard]] match = 'head':}}
  func.func @f(%w: tensor<6x6xf32> {nn.name = "head", nn.role = #nn.role<parameter>}) { return }
}

// -----

module attributes {nn.shard = [#nn.shard<match = "head", dims = [#dist.axes<{"x":(1)3}>]>]} {
  dist.mesh @mesh <["x"=4]>
  // expected-error@+1 {{parameter 'head', [[shard]] match = 'head':}}
  func.func @f(%w: tensor<6xf32> {nn.name = "head", nn.role = #nn.role<parameter>}) { return }
}

// -----

module attributes {nn.shard = [#nn.shard<match = "head", dims = [#dist.axes<{"x"}>]>]} {
  dist.mesh @mesh <["x"=2]>
  // expected-error@+1 {{dims has 1 entries, expected 2, one for each dimension of [6, 4]}}
  func.func @f(%w: tensor<6x4xf32> {nn.name = "head", nn.role = #nn.role<parameter>}) { return }
}

// -----

module attributes {nn.shard = [#nn.shard<match = "head", dims = [#dist.axes<{"x"}>, #dist.axes<{}>]>]} {
  dist.mesh @mesh <["x"=2]>
  // expected-error@+1 {{dimension 0 of [12, 5] cannot be split over 'x': the program sees the tensor as [3, 4, 5]; give that as view, and a dimension of it}}
  func.func @f(%w: tensor<3x4x5xf32> {nn.name = "head", nn.role = #nn.role<parameter>, nn.view = #nn.view<shape = [12, 5], view = [3, 4, 5]>}) { return }
}

// -----

module attributes {nn.shard = [#nn.shard<match = "head", dims = [#dist.axes<{"x"}>, #dist.axes<{}>], view = [4, 6]>]} {
  dist.mesh @mesh <["x"=2]>
  // expected-error@+1 {{view [4, 6] does not cut the dimensions of the file's [6, 4]}}
  func.func @f(%w: tensor<6x4xf32> {nn.name = "head", nn.role = #nn.role<parameter>}) { return }
}

// -----

// The experts of one layer are one stacked tensor.
module attributes {nn.shard = [#nn.shard<match = "experts.1.w", dims = [#dist.axes<{"x"}>, #dist.axes<{}>]>]} {
  dist.mesh @mesh <["x"=2]>
  // expected-error@+1 {{[[shard]] match = 'experts.1.w' matches 'experts.1.w' and not 'experts.0.w', which are experts of one layer and laid out as one tensor [2, 6, 4]; match all of its experts, or none}}
  func.func @f(%w: tensor<2x6x4xf32> {nn.name = "experts.0.w", nn.role = #nn.role<parameter>, nn.parts = [#nn.part<name = "experts.0.w">, #nn.part<name = "experts.1.w">]}) { return }
}
