// RUN: cleave-opt %s --check-inject-fault=kind=pad-identity | FileCheck %s
// RUN: cleave-opt %s "--check-inject-fault=kind=pad-identity index=2" | FileCheck %s --check-prefix=MAX

// The fault breaks all masks that one product reads: with one left intact, zero
// times the padding would hide the other. The maximum keeps its own mask.
// CHECK-LABEL: func @loss_grad
// CHECK-DAG:     %[[MINUS:.+]] = arith.constant dense<0xFF800000>
// CHECK-DAG:     %[[ONE:.+]] = arith.constant dense<1.000000e+00> : tensor<2x3xf32>
// CHECK-DAG:     %[[ONEW:.+]] = arith.constant dense<1.000000e+00> : tensor<3x4xf32>
// CHECK-DAG:     arith.select %{{.+}}, %{{.+}}, %[[ONE]] {dist.pad_mask}
// CHECK-DAG:     arith.select %{{.+}}, %{{.+}}, %[[ONEW]] {dist.pad_mask}
// CHECK-DAG:     arith.select %{{.+}}, %{{.+}}, %[[MINUS]] {dist.pad_mask}

// The fault fills the padding with a value that wins the maximum.
// MAX:           %[[WINS:.+]] = arith.constant dense<1.000000e+03> : tensor<2x3xf32>
// MAX:           arith.select %{{.+}}, %{{.+}}, %[[WINS]] {dist.pad_mask}
func.func @loss_grad(%x: tensor<2x3xf32>, %w: tensor<3x4xf32>) -> (tensor<3xf32>, tensor<2x4xf32>, tensor<2xf32>) {
  %valid = arith.constant dense<[[true, true, false], [true, true, false]]> : tensor<2x3xi1>
  %validw = arith.constant dense<[[true, true, true, true], [true, true, true, true], [false, false, false, false]]> : tensor<3x4xi1>
  %zero = arith.constant dense<0.0> : tensor<2x3xf32>
  %zerow = arith.constant dense<0.0> : tensor<3x4xf32>
  %lowest = arith.constant dense<0xFF800000> : tensor<2x3xf32>
  %m = arith.select %valid, %x, %zero {dist.pad_mask} : tensor<2x3xi1>, tensor<2x3xf32>
  %sum = nn.reduce sum %m dims = [0] : tensor<2x3xf32> -> tensor<3xf32>
  %mx = arith.select %valid, %x, %zero {dist.pad_mask} : tensor<2x3xi1>, tensor<2x3xf32>
  %mw = arith.select %validw, %w, %zerow {dist.pad_mask} : tensor<3x4xi1>, tensor<3x4xf32>
  %dot = nn.einsum "ij,jk->ik" %mx, %mw : tensor<2x3xf32>, tensor<3x4xf32> -> tensor<2x4xf32>
  %mm = arith.select %valid, %x, %lowest {dist.pad_mask} : tensor<2x3xi1>, tensor<2x3xf32>
  %max = nn.reduce max %mm dims = [1] : tensor<2x3xf32> -> tensor<2xf32>
  return %sum, %dot, %max : tensor<3xf32>, tensor<2x4xf32>, tensor<2xf32>
}
