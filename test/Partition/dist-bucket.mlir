// RUN: cleave-opt %s -split-input-file -dist-bucket | FileCheck %s
// RUN: cleave-opt %s -split-input-file -dist-bucket=bucket=40 | FileCheck %s --check-prefix=SMALL

dist.mesh @m <["d"=2]>
// CHECK-LABEL: func @bucket
// CHECK:         %[[ALL:.+]]:3 = dist.all_reduce sum %{{.+}}, %{{.+}}, %{{.+}} over @m {"d"} purpose gradient : tensor<4xf32>, tensor<6xf32>, tensor<8xf32>
// CHECK-NEXT:    return %[[ALL]]#0, %[[ALL]]#1, %[[ALL]]#2
// SMALL-LABEL: func @bucket
// SMALL:         dist.all_reduce sum %{{.+}}, %{{.+}} over @m
// SMALL:         dist.all_reduce sum %{{[a-z0-9]+}} over @m
func.func @bucket(%a: tensor<4xf32>, %b: tensor<6xf32>, %c: tensor<8xf32>) -> (tensor<4xf32>, tensor<6xf32>, tensor<8xf32>) {
  %0 = dist.all_reduce sum %a over @m {"d"} purpose gradient : tensor<4xf32>
  %1 = dist.all_reduce sum %b over @m {"d"} purpose gradient : tensor<6xf32>
  %2 = dist.all_reduce sum %c over @m {"d"} purpose gradient : tensor<8xf32>
  return %0, %1, %2 : tensor<4xf32>, tensor<6xf32>, tensor<8xf32>
}

// -----

// The second reduction depends on the first; reductions with another purpose or kind are not merged.
dist.mesh @m <["d"=2]>
// CHECK-LABEL: func @negative
// CHECK-COUNT-4: dist.all_reduce
func.func @negative(%a: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %0 = dist.all_reduce sum %a over @m {"d"} purpose gradient : tensor<4xf32>
  %1 = math.exp %0 : tensor<4xf32>
  %2 = dist.all_reduce sum %1 over @m {"d"} purpose gradient : tensor<4xf32>
  %3 = dist.all_reduce sum %1 over @m {"d"} purpose loss : tensor<4xf32>
  %4 = dist.all_reduce max %1 over @m {"d"} purpose gradient : tensor<4xf32>
  return %2, %3, %4 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
