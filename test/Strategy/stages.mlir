// RUN: cleave-opt %s -split-input-file -strategy-data | FileCheck %s
// RUN: cleave-opt %s -split-input-file "-strategy-tensor=sequence=true" -strategy-data | FileCheck %s --check-prefix=SEQUENCE
// RUN: cleave-opt %s -split-input-file "-strategy-data=sequence-axes=data" | FileCheck %s --check-prefix=POSITIONS

// A stage without inputs splits the batch of the activations that it receives;
// shardings chosen by another stage stay.
// CHECK-LABEL: @loss_grad
// CHECK-SAME: {dist.sharding = #dist.sharding<@mesh, [{"data", ?}, {?}, {?}]>, nn.batch_dim = 0 : i64, nn.name = "cut.0.0"
// CHECK-SAME: {dist.sharding = #dist.sharding<@mesh, [{"data"}, {"tensor"}, {}]>, nn.batch_dim = 0 : i64, nn.name = "cut.0.1"
// CHECK-SAME: {nn.name = "cut.0.2"
// CHECK-SAME: {dist.sharding = #dist.sharding<@mesh, [{"data", ?}, {?}, {?}]>, nn.batch_dim = 0 : i64, nn.name = "cut.1.0.grad"
// CHECK-SAME: -> (tensor<4x6x8xf32> {dist.sharding = #dist.sharding<@mesh, [{"data", ?}, {?}, {?}]>, nn.batch_dim = 0 : i64, nn.name = "cut.1.0"
// POSITIONS-LABEL: @loss_grad
// POSITIONS-SAME: {dist.sharding = #dist.sharding<@mesh, [{?}, {"data", ?}, {?}]>, nn.batch_dim = 0 : i64, nn.name = "cut.0.0"
// POSITIONS-SAME: {dist.sharding = #dist.sharding<@mesh, [{?}, {"data", ?}, {?}]>, nn.batch_dim = 0 : i64, nn.name = "cut.1.0.grad"
// Positions are taken from the received activations.
// SEQUENCE-LABEL: @loss_grad
// SEQUENCE: dist.constrain
dist.mesh @mesh <["data"=2, "tensor"=2]>
func.func @loss_grad(
    %w: tensor<8x16xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
    %v: tensor<16x8xf32> {nn.name = "v", nn.role = #nn.role<parameter>},
    %a: tensor<4x6x8xf32> {nn.batch_dim = 0 : i64, nn.name = "cut.0.0", nn.position_dim = 1 : i64, nn.role = #nn.role<activation>},
    %b: tensor<4x6x8xf32> {dist.sharding = #dist.sharding<@mesh, [{"data"}, {"tensor"}, {}]>, nn.batch_dim = 0 : i64, nn.name = "cut.0.1", nn.role = #nn.role<activation>},
    %c: tensor<8xf32> {nn.name = "cut.0.2", nn.role = #nn.role<activation>},
    %d: tensor<4x6x8xf32> {nn.batch_dim = 0 : i64, nn.name = "cut.1.0.grad", nn.role = #nn.role<cotangent>})
    -> (tensor<4x6x8xf32> {nn.batch_dim = 0 : i64, nn.name = "cut.1.0", nn.role = #nn.role<activation>},
        tensor<16x8xf32> {nn.name = "v", nn.role = #nn.role<gradient>}) {
  %0 = nn.einsum "bsh,hm->bsm" %a, %w : tensor<4x6x8xf32>, tensor<8x16xf32> -> tensor<4x6x16xf32>
  %1 = nn.einsum "bsm,mh->bsh" %0, %v : tensor<4x6x16xf32>, tensor<16x8xf32> -> tensor<4x6x8xf32>
  %2 = arith.addf %1, %b : tensor<4x6x8xf32>
  %3 = nn.einsum "bsm,bsh->mh" %0, %d : tensor<4x6x16xf32>, tensor<4x6x8xf32> -> tensor<16x8xf32>
  return %2, %3 : tensor<4x6x8xf32>, tensor<16x8xf32>
}
