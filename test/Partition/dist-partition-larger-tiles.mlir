// RUN: cleave-opt %s -dist-partition | FileCheck %s
// RUN: cleave-opt %s "-dist-partition=larger-tiles=true" -dist-verify-variance | FileCheck %s --check-prefix=LARGER

// A transposition of small tiles. By default no rank holds more than the larger of
// the source and the target tile. With the option, one all-reduce of the whole
// tensor replaces the exchange among all ranks, because it has fewer messages.
dist.mesh @m <["x"=8, "y"=2]>
// CHECK-LABEL: func @transpose
// CHECK: dist.exchange {{.*}} : (tensor<2x8xf32>) -> tensor<8x2xf32>
// CHECK-NEXT: return
// LARGER-LABEL: func @transpose
// LARGER: dist.all_reduce {{.*}} : tensor<16x16xf32>
func.func @transpose(%a: tensor<16x16xf32> {dist.sharding = #dist.sharding<@m, [{"x"}, {"y"}]>})
    -> (tensor<16x16xf32> {dist.sharding = #dist.sharding<@m, [{"y"}, {"x"}]>}) {
  return %a : tensor<16x16xf32>
}
