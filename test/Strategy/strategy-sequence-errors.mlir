// RUN: cleave-opt %s -split-input-file --strategy-sequence=ulysses=u -verify-diagnostics -o /dev/null

dist.mesh @mesh <["u"=4]>
func.func @forward(%q: tensor<2x6x3x1x4xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>}) -> tensor<2x6x3x1x4xf32> {
  %k = nn.reshape %q : tensor<2x6x3x1x4xf32> -> tensor<2x6x3x4xf32>
  // expected-error @below {{has 3 KV heads of 1 query each, 3 heads, which kind ulysses cannot split over the 4 ranks of axis 'u': it needs a head for every rank; use fewer ranks, or kind ring}}
  %o, %lse = nn.attention %q, %k, %k scale = 0.5
    : (tensor<2x6x3x1x4xf32>, tensor<2x6x3x4xf32>, tensor<2x6x3x4xf32>) -> (tensor<2x6x3x1x4xf32>, tensor<2x3x1x6xf32>)
  return %o : tensor<2x6x3x1x4xf32>
}

// -----

dist.mesh @mesh <["u"=2]>
func.func @forward(%q: tensor<2x6x3x1x4xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>}) -> tensor<2x6x3x1x4xf32> {
  %k = nn.reshape %q : tensor<2x6x3x1x4xf32> -> tensor<2x6x3x4xf32>
  // expected-warning @below {{3 heads (3 of keys, 1 queries each) do not divide by the 2 ranks that split them: they are padded to 4}}
  %o, %lse = nn.attention %q, %k, %k scale = 0.5
    : (tensor<2x6x3x1x4xf32>, tensor<2x6x3x4xf32>, tensor<2x6x3x4xf32>) -> (tensor<2x6x3x1x4xf32>, tensor<2x3x1x6xf32>)
  return %o : tensor<2x6x3x1x4xf32>
}

// -----

// expected-error @below {{has no dimension of positions to split over axis 'u'}}
module {
  dist.mesh @mesh <["u"=2]>
  func.func @forward(%x: tensor<2x6xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>}) -> tensor<2x6xf32> {
    return %x : tensor<2x6xf32>
  }
}

// -----

dist.mesh @mesh <["u"=2]>
func.func @forward(%x: tensor<2x6x8xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>}) -> tensor<2x6x6xf32> {
  %s = nn.einsum "bsh,bth->bst" %x, %x : tensor<2x6x8xf32>, tensor<2x6x8xf32> -> tensor<2x6x6xf32>
  // expected-error @below {{combines the scores 'tensor<2x6x6xf32>' of 6 positions with each other: this attention is not of a form that becomes one operation}}
  %p = nn.softmax %s : tensor<2x6x6xf32>
  return %p : tensor<2x6x6xf32>
}
