// RUN: cleave-opt %s --split-input-file --strategy-data | FileCheck %s
// RUN: cleave-opt %s --split-input-file --strategy-data=zero=1 | FileCheck %s --check-prefix=ZERO

dist.mesh @mesh <["data"=2, "tensor"=2]>

// The batch is split; sums stay partial until @update.
// CHECK-LABEL: func @loss_grad
// CHECK-SAME:    tensor<8x5xi64> {dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>
// CHECK-SAME:    -> (tensor<f32> {dist.sharding = #dist.sharding<@mesh, [], partial = sum{"data"}>
func.func @loss_grad(%w: tensor<3x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"tensor"}]>, nn.name = "w", nn.role = #nn.role<parameter>},
                     %x: tensor<8x5xi64> {nn.name = "x", nn.role = #nn.role<tokens>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}) {
  %0 = arith.constant dense<0.0> : tensor<f32>
  return %0 : tensor<f32>
}

// Without ZeRO the state is sharded like the parameter. With ZeRO the dimension with
// the least padding is split further: 3 needs padding, 6 over both axes as well, so
// the first of the two is taken.
// CHECK-LABEL: func @update
// CHECK-SAME:    tensor<3x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"tensor"}]>, nn.name = "w.m"
// CHECK-SAME:    tensor<3x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"tensor"}], partial = sum{"data"}>, nn.name = "w", nn.role = #nn.role<gradient>}
// CHECK:         dist.constrain %{{.+}} <@mesh, [{}, {"tensor"}]>

// ZERO-LABEL: func @update
// ZERO-SAME:    tensor<3x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"tensor"}]>, nn.name = "w", nn.role = #nn.role<parameter>}
// ZERO-SAME:    tensor<3x6xf32> {dist.sharding = #dist.sharding<@mesh, [{"data"}, {"tensor"}]>, nn.name = "w.m"
// ZERO:         dist.constrain %{{.+}} <@mesh, [{"data"}, {"tensor"}]>
// ZERO:         dist.constrain %{{.+}} <@mesh, [{"data"}, {"tensor"}]>
func.func @update(%w: tensor<3x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"tensor"}]>, nn.name = "w", nn.role = #nn.role<parameter>},
                  %m: tensor<3x6xf32> {nn.name = "w.m", nn.role = #nn.role<state>},
                  %g: tensor<3x6xf32> {nn.name = "w", nn.role = #nn.role<gradient>}) -> tensor<3x6xf32> {
  %0 = arith.addf %w, %m : tensor<3x6xf32>
  %1 = arith.subf %0, %g : tensor<3x6xf32>
  return %1 : tensor<3x6xf32>
}

// -----

// A dimension that divides by both axes is split by both.
dist.mesh @mesh <["data"=2, "tensor"=2]>

// ZERO-LABEL: func @update
// ZERO-SAME:    tensor<8xf32> {dist.sharding = #dist.sharding<@mesh, [{"tensor", "data"}]>, nn.name = "b.m"
func.func @update(%b: tensor<8xf32> {dist.sharding = #dist.sharding<@mesh, [{"tensor"}]>, nn.name = "b", nn.role = #nn.role<parameter>},
                  %m: tensor<8xf32> {nn.name = "b.m", nn.role = #nn.role<state>}) -> tensor<8xf32> {
  %0 = arith.addf %b, %m : tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

// The batch need not be the first dimension; a tensor without a batch dimension
// is not split, whatever its size.
dist.mesh @mesh <["data"=2]>

// CHECK-LABEL: func @forward
// CHECK-SAME:    tensor<8x8xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, nn.name = "mask"
// CHECK-SAME:    tensor<3x8xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"data"}]>, nn.batch_dim = 1 : i64, nn.name = "x"
// CHECK-SAME:    -> (tensor<3x8xf32> {dist.sharding = #dist.sharding<@mesh, [{?}, {"data"}]>, nn.batch_dim = 1 : i64, nn.name = "y"
// CHECK-SAME:    tensor<3xf32> {nn.name = "sums", nn.role = #nn.role<output>})
func.func @forward(%mask: tensor<8x8xf32> {nn.name = "mask", nn.role = #nn.role<input>},
                   %x: tensor<3x8xf32> {nn.batch_dim = 1 : i64, nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<3x8xf32> {nn.batch_dim = 1 : i64, nn.name = "y", nn.role = #nn.role<output>},
        tensor<3xf32> {nn.name = "sums", nn.role = #nn.role<output>}) {
  %0 = nn.reduce sum %x dims = [1] : tensor<3x8xf32> -> tensor<3xf32>
  return %x, %0 : tensor<3x8xf32>, tensor<3xf32>
}

// -----

dist.mesh @mesh <["data"=2]>

// With one microbatch a gradient is reduced as soon as it is computed.
// CHECK-LABEL: func @loss_grad
// CHECK-SAME:    -> (tensor<f32> {dist.sharding = #dist.sharding<@mesh, [], partial = sum{"data"}>
// CHECK-SAME:    tensor<3xf32> {dist.sharding = #dist.sharding<@mesh, [{}]>, nn.name = "w", nn.role = #nn.role<gradient>}
// CHECK:         %[[G:.+]] = nn.reduce sum
// CHECK-NEXT:    %[[PARTIAL:.+]] = dist.constrain %[[G]] <@mesh, [{}], partial = sum{"data"}>
// CHECK-NEXT:    %[[SUM:.+]] = dist.constrain %[[PARTIAL]] <@mesh, [{}]> purpose gradient
// CHECK:         return %{{.*}}, %[[SUM]]
func.func @loss_grad(%w: tensor<3xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                     %x: tensor<8x3xf32> {nn.name = "x", nn.role = #nn.role<input>, nn.batch_dim = 0 : i64})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<3xf32> {nn.name = "w", nn.role = #nn.role<gradient>}) {
  %g = nn.reduce sum %x dims = [0] : tensor<8x3xf32> -> tensor<3xf32>
  %l = nn.reduce sum %x dims = [0, 1] : tensor<8x3xf32> -> tensor<f32>
  return %l, %g : tensor<f32>, tensor<3xf32>
}
