// RUN: cleave-opt %s -verify-diagnostics "--nn-add-loss=loss=cross_entropy microbatches=2"
// RUN: cleave-opt %s "--nn-add-loss=loss=cross_entropy microbatches=2 shared-slots" | FileCheck %s
// RUN: cleave-opt %s "--nn-add-loss=loss=cross_entropy" | FileCheck %s

// CHECK: func @loss
func.func @forward(%x: tensor<2x4xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<2x2xf32> {nn.name = "scores", nn.role = #nn.role<output>, nn.whole_call}) {
  // expected-error @below {{output 'scores', which the loss reads, mixes the samples of a batch, so that train.microbatches = 2 would change it; set train.microbatches = 1}}
  %0 = nn.einsum "ac,bc->ab" %x, %x : tensor<2x4xf32>, tensor<2x4xf32> -> tensor<2x2xf32>
  return %0 : tensor<2x2xf32>
}
