// RUN: cleave-opt %s -dist-partition | FileCheck %s
// RUN: cleave-opt %s "-dist-partition=larger-tiles=true" -dist-verify-variance | FileCheck %s --check-prefix=LARGER

// A transposition of small tiles. No rank ever has more than the larger of source
// and target, unless asked: one all-reduce of the whole has fewer messages than an
// exchange among all ranks.
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
