// RUN: cleave-opt %s | cleave-opt | FileCheck %s

dist.mesh @m <["x"=4, "y"=2]>

// CHECK-LABEL: func @collectives
func.func @collectives(%a: tensor<8x6xf32>, %b: tensor<6xf32>) {
  // CHECK: dist.all_reduce sum %{{.*}}, %{{.*}} over @m {"x", "y"} purpose gradient : tensor<8x6xf32>, tensor<6xf32>
  %0:2 = dist.all_reduce sum %a, %b over @m {"x", "y"} purpose gradient : tensor<8x6xf32>, tensor<6xf32>
  // CHECK: dist.all_gather %{{.*}}, %{{.*}} dims [1, 0] over @m {"y"} purpose parameter : (tensor<8x6xf32>, tensor<6xf32>) -> (tensor<8x12xf32>, tensor<12xf32>)
  %1:2 = dist.all_gather %a, %b dims [1, 0] over @m {"y"} purpose parameter
      : (tensor<8x6xf32>, tensor<6xf32>) -> (tensor<8x12xf32>, tensor<12xf32>)
  // CHECK: dist.reduce_scatter max %{{.*}} dims [0] over @m {"x":(2)2} purpose activation : (tensor<8x6xf32>) -> tensor<4x6xf32>
  %2 = dist.reduce_scatter max %a dims [0] over @m {"x":(2)2} purpose activation
      : (tensor<8x6xf32>) -> tensor<4x6xf32>
  // CHECK: dist.all_to_all %{{.*}} split [0] concat [1] over @m {"x"} purpose expert : (tensor<8x6xf32>) -> tensor<2x24xf32>
  %3 = dist.all_to_all %a split [0] concat [1] over @m {"x"} purpose expert
      : (tensor<8x6xf32>) -> tensor<2x24xf32>
  // CHECK: dist.collective_permute %{{.*}} pairs [0, 1, 1, 2] over @m {"x"} purpose pipeline : tensor<6xf32>
  %4 = dist.collective_permute %b pairs [0, 1, 1, 2] over @m {"x"} purpose pipeline : tensor<6xf32>
  return
}

// Uneven tiles, partial sums, an axis that takes no part, two operands in one message.
// CHECK-LABEL: func @exchange
func.func @exchange(%a: tensor<3x6xf32>, %b: tensor<5x4xf32>) {
  // CHECK: dist.exchange %{{.*}} from [#dist.sharding<@m, [{"x"}, {}]>] to [#dist.sharding<@m, [{}, {"x"}]>] of [tensor<10x6xf32>] over @m {"x"} purpose activation : (tensor<3x6xf32>) -> tensor<10x2xf32>
  %0 = dist.exchange %a from [#dist.sharding<@m, [{"x"}, {}]>] to [#dist.sharding<@m, [{}, {"x"}]>]
      of [tensor<10x6xf32>] over @m {"x"} purpose activation : (tensor<3x6xf32>) -> tensor<10x2xf32>
  // CHECK: dist.exchange %{{.*}} partial = sum{"x"}
  %1 = dist.exchange %b from [#dist.sharding<@m, [{"y"}, {}], partial = sum{"x"}>]
      to [#dist.sharding<@m, [{"y"}, {"x"}]>] of [tensor<10x4xf32>] over @m {"x"} purpose gradient
      : (tensor<5x4xf32>) -> tensor<5x1xf32>
  %2:2 = dist.exchange %a, %b from [#dist.sharding<@m, [{"x"}, {}]>, #dist.sharding<@m, [{}, {"x"}]>]
      to [#dist.sharding<@m, [{}, {"x"}]>, #dist.sharding<@m, [{}, {}]>]
      of [tensor<10x6xf32>, tensor<5x13xf32>] over @m {"x"} purpose activation
      : (tensor<3x6xf32>, tensor<5x4xf32>) -> (tensor<10x2xf32>, tensor<5x13xf32>)
  // Partial sums over "x" become partial sums over "y", after the reduction.
  // CHECK: dist.exchange %{{.*}} to [#dist.sharding<@m, [{}, {}], partial = sum{"y"}>] {{.*}} purpose gradient {rounds = 2 : i64}
  %3 = dist.exchange %b from [#dist.sharding<@m, [{"y"}, {}], partial = sum{"x"}>]
      to [#dist.sharding<@m, [{}, {}], partial = sum{"y"}>] of [tensor<10x4xf32>] over @m {"x", "y"}
      purpose gradient {rounds = 2 : i64} : (tensor<5x4xf32>) -> tensor<10x4xf32>
  return
}

// CHECK-LABEL: func @place
func.func @place(%a: tensor<10x6xf32>) -> tensor<3x6xf32> {
  // CHECK: dist.axis_index over @m {"x", "y"} : tensor<i64>
  %0 = dist.axis_index over @m {"x", "y"} : tensor<i64>
  // CHECK: dist.tile_offset tile 3 over @m {"x"} : tensor<i64>
  %1 = dist.tile_offset tile 3 over @m {"x"} : tensor<i64>
  // CHECK: dist.slice %{{.*}} dim 0 over @m {"x"} : tensor<10x6xf32> -> tensor<3x6xf32>
  %2 = dist.slice %a dim 0 over @m {"x"} : tensor<10x6xf32> -> tensor<3x6xf32>
  // CHECK: dist.keep_first %{{.*}} over @m {"y"} : tensor<10x6xf32>
  %3 = dist.keep_first %a over @m {"y"} : tensor<10x6xf32>
  return %2 : tensor<3x6xf32>
}

// CHECK-LABEL: func @rows
func.func @rows(%ids: tensor<3x2xi64>, %x: tensor<4x6x5xf32>, %n: tensor<4xi64>) -> tensor<4x6x5xf32> {
  // CHECK: dist.plan_rows %{{.*}} tile 3 : tensor<3x2xi64> -> tensor<2x4x3xi64>, tensor<6xi64>, tensor<2x4x3xi64>, tensor<4x2xi64>
  %sources, %places, %sent, %counts = dist.plan_rows %ids tile 3
    : tensor<3x2xi64> -> tensor<2x4x3xi64>, tensor<6xi64>, tensor<2x4x3xi64>, tensor<4x2xi64>
  // CHECK: dist.sort_rows %{{.*}} groups 3 : tensor<3x2xi64> -> tensor<6xi64>, tensor<3x2xi64>, tensor<6xi64>
  %order, %at, %sorted = dist.sort_rows %ids groups 3 : tensor<3x2xi64> -> tensor<6xi64>, tensor<3x2xi64>, tensor<6xi64>
  // CHECK: dist.all_to_all_v %{{.*}} sent %{{.*}} received %{{.*}} expect [6] over @m {"x"} purpose expert : tensor<4x6x5xf32> counts tensor<4xi64>
  %0 = dist.all_to_all_v %x sent %n received %n expect [6] over @m {"x"} purpose expert : tensor<4x6x5xf32> counts tensor<4xi64>
  // CHECK: dist.all_to_all_v %{{.*}} expect [6, 6, 6, 2] by {"x"} home over @m {"x"} purpose expert
  %1 = dist.all_to_all_v %0 sent %n received %n expect [6, 6, 6, 2] by {"x"} home over @m {"x"} purpose expert : tensor<4x6x5xf32> counts tensor<4xi64>
  return %1 : tensor<4x6x5xf32>
}
