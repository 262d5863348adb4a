// RUN: cleave-opt %s -split-input-file -dist-propagate -verify-diagnostics

// expected-error @below {{there is no dist.mesh in the module}}
module {
  func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
    return %x : tensor<4xf32>
  }
}

// -----

module {
  dist.mesh @m <["x"=2]>
  // expected-error @below {{there is a second dist.mesh}}
  dist.mesh @n <["x"=2]>
}

// -----

dist.mesh @m <["x"=2]>
// expected-error @below {{argument 0 of @f: type 'tensor<?xf32>'; expected sizes that are known before the program runs}}
func.func @f(%x: tensor<?xf32>) -> tensor<?xf32> {
  return %x : tensor<?xf32>
}

// -----

dist.mesh @m <["x"=2]>
func.func @loss_grad(%p: tensor<4xf32> {nn.name = "w", nn.role = #nn.role<parameter>, dist.sharding = #dist.sharding<@m, [{"x"}]>}) {
  return
}
// expected-error @below {{parameter 'w' is 'tensor<4xf32>' with #dist.sharding<@m, [{}]> in @update argument 0, expected as in @loss_grad argument 0}}
func.func @update(%p: tensor<4xf32> {nn.name = "w", nn.role = #nn.role<parameter>, dist.sharding = #dist.sharding<@m, [{}]>}) {
  return
}
