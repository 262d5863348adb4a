// RUN: cleave-opt %s --dist-propagate --dist-plan-ops --dist-partition --dist-verify-variance | FileCheck %s

// A recurrent layer whose samples are split: every rank runs the loop on its samples, and the recurrent matrix, which is
// split as well, is gathered once, before the loop.
dist.mesh @mesh <["data"=2]>

// CHECK-LABEL: func.func @f(
// CHECK:       %[[U:.*]] = dist.all_gather
// CHECK:       nn.scan trips = 5 carries(%{{.*}} = %{{.*}} : tensor<2x6xf32>) slices(%{{.*}} = %{{.*}} : tensor<5x2x6xf32>)
// CHECK-SAME:    captures(%{{.*}} = %[[U]] : tensor<6x6xf32>) -> tensor<2x6xf32>, tensor<5x2x6xf32> {
// CHECK-NOT:     dist.
// CHECK:         nn.yield
func.func @f(%xs: tensor<5x4x6xf32> {nn.name = "xs", nn.role = #nn.role<input>, dist.sharding = #dist.sharding<@mesh, [{}, {"data"}, {}]>},
             %h0: tensor<4x6xf32> {nn.name = "h0", nn.role = #nn.role<input>},
             %u: tensor<6x6xf32> {nn.name = "u", nn.role = #nn.role<parameter>, dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>})
    -> (tensor<5x4x6xf32> {nn.name = "ys", nn.role = #nn.role<output>, dist.sharding = #dist.sharding<@mesh, [{}, {"data"}, {}]>}) {
  %last, %ys = nn.scan trips = 5 carries(%h = %h0 : tensor<4x6xf32>) slices(%x = %xs : tensor<5x4x6xf32>)
      captures(%w = %u : tensor<6x6xf32>) -> tensor<4x6xf32>, tensor<5x4x6xf32> {
    %0 = nn.einsum "bh,hk->bk" %h, %w : tensor<4x6xf32>, tensor<6x6xf32> -> tensor<4x6xf32>
    %1 = arith.addf %0, %x : tensor<4x6xf32>
    %2 = math.tanh %1 : tensor<4x6xf32>
    nn.yield %2, %2 : tensor<4x6xf32>, tensor<4x6xf32>
  }
  return %ys : tensor<5x4x6xf32>
}
