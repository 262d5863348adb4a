// RUN: cleave-opt %s -split-input-file -dist-propagate -dist-plan-ops -verify-diagnostics

// What was not weighed is said, once for each kind of operation.
dist.mesh @m <["a"=2, "b"=2, "c"=2, "d"=2, "e"=2, "f"=2]>
func.func @main(%x: tensor<2x2x2x2x2x2xf32> {dist.sharding = #dist.sharding<@m, [{"a"}, {"b"}, {"c"}, {"d"}, {"e"}, {"f"}]>},
                %y: tensor<2x2x2x2x2x2xf32> {dist.sharding = #dist.sharding<@m, [{"b"}, {"c"}, {"d"}, {"e"}, {"f"}, {"a"}]>})
    -> (tensor<2x2x2x2x2x2xf32>, tensor<2x2x2x2x2x2xf32>) {
  // expected-remark @below {{arith.addf has more than 512 ways to run on the axes of its tensors; the others, also of further such operations, were not weighed}}
  %0 = arith.addf %x, %y {dist.sharding = [#dist.sharding<@m, [{"c"}, {"d"}, {"e"}, {"f"}, {"a"}, {"b"}]>]} : tensor<2x2x2x2x2x2xf32>
  %1 = arith.addf %y, %x {dist.sharding = [#dist.sharding<@m, [{"c"}, {"d"}, {"e"}, {"f"}, {"a"}, {"b"}]>]} : tensor<2x2x2x2x2x2xf32>
  return %0, %1 : tensor<2x2x2x2x2x2xf32>, tensor<2x2x2x2x2x2xf32>
}
