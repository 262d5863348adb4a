// RUN: cleave-opt %s --nn-host-to-rt | FileCheck %s

dist.mesh @m <["x"=2, "y"=3]>
dist.mesh @n <["z"=4]>

func.func private @kernel_0(%x: tensor<6xf32>) -> tensor<6xf32>
  attributes {nn.kernel, nn.extent = 6 : i64, nn.grain = 2 : i64, nn.inplace = array<i64: 0, 0>}

// CHECK-LABEL: func @calls
// CHECK-SAME:    (%[[X:.+]]: tensor<6xf32>)
// CHECK-NEXT:    %[[L:.+]] = rt.launch @kernel_0(%[[X]]) extent = 6 grain = 2 inplace = [0, 0]
// CHECK-NEXT:    %[[F:.+]] = rt.fill 2.000000e+00 : f32 : tensor<6xf32>
// CHECK-NEXT:    return %[[L]], %[[F]]
func.func @calls(%x: tensor<6xf32>) -> (tensor<6xf32>, tensor<6xf32>) {
  %0 = func.call @kernel_0(%x) : (tensor<6xf32>) -> tensor<6xf32>
  %1 = nn.save %0 : tensor<6xf32>
  %c = arith.constant dense<2.0> : tensor<6xf32>
  %unused = arith.constant dense<[1.0, 2.0]> : tensor<2xf32>
  return %1, %c : tensor<6xf32>, tensor<6xf32>
}

// CHECK-LABEL: func @placements
// CHECK-NEXT:    rt.alias %{{.*}} offset = 0 : (tensor<4x6xf32>) -> tensor<24xf32>
// CHECK-NEXT:    rt.alias %{{.*}} offset = 6 : (tensor<4x6xf32>) -> tensor<2x6xf32>
// CHECK-NEXT:    rt.copy %{{.*}} [2, 6, 1] to [0, 3, 1] shape = [4, 3] : (tensor<4x6xf32>) -> tensor<4x3xf32>
// CHECK-NEXT:    rt.copy %{{.*}} [0, 1, 6] to [0, 4, 1] shape = [6, 4] : (tensor<4x6xf32>) -> tensor<6x4xf32>
func.func @placements(%x: tensor<4x6xf32>) -> (tensor<24xf32>, tensor<2x6xf32>, tensor<4x3xf32>, tensor<6x4xf32>) {
  %0 = nn.reshape %x : tensor<4x6xf32> -> tensor<24xf32>
  %1 = nn.slice %x [1, 0] [2, 6] [1, 1] : tensor<4x6xf32> -> tensor<2x6xf32>
  %2 = nn.slice %x [0, 2] [4, 3] [1, 1] : tensor<4x6xf32> -> tensor<4x3xf32>
  %3 = nn.transpose %x [1, 0] : tensor<4x6xf32> -> tensor<6x4xf32>
  return %0, %1, %2, %3 : tensor<24xf32>, tensor<2x6xf32>, tensor<4x3xf32>, tensor<6x4xf32>
}

// The last tile of a padded dimension extends past the end of the value.
// CHECK-LABEL: func @tiles
// CHECK-NEXT:    rt.alias %{{.*}} offset = 0 axis_terms = [0, 1, 2, 12, 1, 1, 3, 4] reach = 24 : (tensor<11x2xf32>) -> tensor<2x2xf32>
// CHECK-NEXT:    rt.copy %{{.*}} [0, 6, 1] to [0, 2, 1] shape = [4, 2] axis_terms = [1, 1, 3, 2] : (tensor<4x6xf32>) -> tensor<4x2xf32>
func.func @tiles(%x: tensor<11x2xf32>, %y: tensor<4x6xf32>) -> (tensor<2x2xf32>, tensor<4x2xf32>) {
  %0 = dist.slice %x dim 0 over @m {"x", "y"} : tensor<11x2xf32> -> tensor<2x2xf32>
  %1 = dist.slice %y dim 1 over @m {"y"} : tensor<4x6xf32> -> tensor<4x2xf32>
  return %0, %1 : tensor<2x2xf32>, tensor<4x2xf32>
}

// A sub-axis is a digit of the rank's index.
// CHECK-LABEL: func @sub_axis_tile
// CHECK-NEXT:    rt.alias %{{.*}} offset = 0 axis_terms = [0, 2, 2, 12, 0, 1, 2, 6] reach = 24 : (tensor<4x6xf32>) -> tensor<1x6xf32>
func.func @sub_axis_tile(%x: tensor<4x6xf32>) -> tensor<1x6xf32> {
  %0 = dist.slice %x dim 0 over @n {"z":(2)2, "z":(1)2} : tensor<4x6xf32> -> tensor<1x6xf32>
  return %0 : tensor<1x6xf32>
}

// CHECK-LABEL: func @collectives
// CHECK-NEXT:    rt.collective all_reduce(%{{.*}}, %{{.*}}) group = [0, 1, 2] layout = [1, 24, 1, 24, 1, 6, 1, 6] purpose = "gradient"
// CHECK-NEXT:    rt.collective all_gather(%{{.*}}) group = [1, 1, 3] layout = [4, 6, 4, 6] purpose = "activation"
// CHECK-NEXT:    rt.collective reduce_scatter(%{{.*}}) group = [1, 1, 3] layout = [4, 2, 4, 2] purpose = "activation" {reduce = 1 : i32}
// CHECK-NEXT:    rt.collective all_to_all(%{{.*}}) group = [0, 1, 2] layout = [1, 12, 2, 6] purpose = "activation"
// CHECK-NEXT:    rt.collective permute(%{{.*}}) group = [1, 1, 3] layout = [1, 24, 1, 24] purpose = "activation" {sources = array<i64: -1, 0, 1>}
func.func @collectives(%x: tensor<4x6xf32>, %y: tensor<6xf32>)
    -> (tensor<4x6xf32>, tensor<6xf32>, tensor<4x18xf32>, tensor<4x2xf32>, tensor<2x12xf32>, tensor<4x6xf32>) {
  %0:2 = dist.all_reduce sum %x, %y over @m {"x"} purpose gradient : tensor<4x6xf32>, tensor<6xf32>
  %1 = dist.all_gather %x dims [1] over @m {"y"} purpose activation : (tensor<4x6xf32>) -> tensor<4x18xf32>
  %2 = dist.reduce_scatter max %x dims [1] over @m {"y"} purpose activation : (tensor<4x6xf32>) -> tensor<4x2xf32>
  %3 = dist.all_to_all %x split [0] concat [1] over @m {"x"} purpose activation : (tensor<4x6xf32>) -> tensor<2x12xf32>
  %4 = dist.collective_permute %x pairs [0, 1, 1, 2] over @m {"y"} purpose activation : tensor<4x6xf32>
  return %0#0, %0#1, %1, %2, %3, %4 : tensor<4x6xf32>, tensor<6xf32>, tensor<4x18xf32>, tensor<4x2xf32>, tensor<2x12xf32>, tensor<4x6xf32>
}

// An exchange states the tensor's layout before and after; the transfers are
// derived from it when the program is loaded. Two operands reduced alike share one message.
// CHECK-LABEL: func @exchange
// CHECK:         rt.collective exchange(%{{.*}}) group = [0, 1, 2, 1, 1, 3] layout = [1, 12, 1, 20] purpose = "activation"
// CHECK-SAME:      {exchanges = array<i64: 2, 10, 6, 2, 0, 1, 2, 1, 1, 3, 0, 0, 1, 1, 1, 3, 0, 0, 1>}
// CHECK:         rt.collective exchange(%{{.*}}, %{{.*}}) group = [0, 1, 2] layout = [1, 5, 1, 3, 1, 5, 1, 5] purpose = "gradient"
// CHECK-SAME:      {exchanges = array<i64: 1, 5, 0, 1, 0, 1, 2, 1, 0, 1, 2, 0, 1, 1, 5, 0, 0, 1, 0, 1, 2, 0, 1>, reduce = 1 : i32}
func.func @exchange(%a: tensor<2x6xf32>, %b: tensor<5xf32>, %c: tensor<5xf32>)
    -> (tensor<10x2xf32>, tensor<3xf32>, tensor<5xf32>) {
  %0 = dist.exchange %a from [#dist.sharding<@m, [{"x", "y"}, {}]>] to [#dist.sharding<@m, [{}, {"y"}]>]
      of [tensor<10x6xf32>] over @m {"x", "y"} purpose activation : (tensor<2x6xf32>) -> tensor<10x2xf32>
  %1:2 = dist.exchange %b, %c from [#dist.sharding<@m, [{}], partial = max{"x"}>, #dist.sharding<@m, [{}], partial = max{"x"}>]
      to [#dist.sharding<@m, [{"x"}]>, #dist.sharding<@m, [{}]>]
      of [tensor<5xf32>, tensor<5xf32>] over @m {"x"} purpose gradient
      : (tensor<5xf32>, tensor<5xf32>) -> (tensor<3xf32>, tensor<5xf32>)
  return %0, %1#0, %1#1 : tensor<10x2xf32>, tensor<3xf32>, tensor<5xf32>
}
