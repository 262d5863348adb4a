// RUN: cleave-opt %s | cleave-opt | FileCheck %s

// CHECK: dist.mesh @m <["x"=4, "y"=2, "z"=3]>
dist.mesh @m <["x"=4, "y"=2, "z"=3]>
// CHECK: dist.mesh @n <["data"=2, "tensor"=4]> links ["inter", "intra"]
dist.mesh @n <["data"=2, "tensor"=4]> links ["inter", "intra"]
// CHECK: dist.mesh @o <["expert"=8]> links ["inter"] within [4]
dist.mesh @o <["expert"=8]> links ["inter"] within [4]

// CHECK-LABEL: func @boundary
// CHECK-SAME: {dist.sharding = #dist.sharding<@m, [{"x"}, {}]>}
// CHECK-SAME: {dist.sharding = #dist.sharding<@m, [{}, {"x"}]>}
func.func @boundary(%a: tensor<24x8xf32> {dist.sharding = #dist.sharding<@m, [{"x"}, {}]>})
    -> (tensor<24x8xf32> {dist.sharding = #dist.sharding<@m, [{}, {"x"}]>}) {
  return %a : tensor<24x8xf32>
}

// CHECK-LABEL: func @constrain
func.func @constrain(%a: tensor<24x8xf32>, %s: tensor<f32>) -> (tensor<24x8xf32>, tensor<f32>) {
  // CHECK: dist.constrain %{{.*}} <@m, [{"y", "x":(1)2, ?}, {?}], partial = sum{"z"}, replicated = {"x":(2)2}, priority = 1> : tensor<24x8xf32>
  %0 = dist.constrain %a <@m, [{"y", "x":(1)2, ?}, {?}], partial = sum{"z"}, replicated = {"x":(2)2}, priority = 1> : tensor<24x8xf32>
  // CHECK: dist.constrain %{{.*}} <@m, [], partial = max{"x", "y"}> : tensor<f32>
  %1 = dist.constrain %s <@m, [], partial = max{"x", "y"}> : tensor<f32>
  return %0, %1 : tensor<24x8xf32>, tensor<f32>
}

// CHECK-LABEL: func @on_operation
func.func @on_operation(%a: tensor<24x8xf32>) -> tensor<24x8xf32> {
  // CHECK: arith.negf %{{.*}} {dist.sharding = [#dist.sharding<@m, [{"x"}, {"z"}]>]}
  %0 = arith.negf %a {dist.sharding = [#dist.sharding<@m, [{"x"}, {"z"}]>]} : tensor<24x8xf32>
  return %0 : tensor<24x8xf32>
}
