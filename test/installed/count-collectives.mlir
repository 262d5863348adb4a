// RUN: cleave-opt --load-pass-plugin=%plugin --pass-pipeline='builtin.module(func.func(count-collectives))' --verify-diagnostics %s

dist.mesh @m <["d"=2]>
// expected-remark @below {{2 collectives}}
func.func @f(%a: tensor<4xf32>) -> (tensor<8xf32>, tensor<4xf32>) {
  %0 = dist.all_gather %a dims [0] over @m {"d"} purpose activation : (tensor<4xf32>) -> tensor<8xf32>
  %1 = dist.all_reduce sum %a over @m {"d"} purpose gradient : tensor<4xf32>
  return %0, %1 : tensor<8xf32>, tensor<4xf32>
}
