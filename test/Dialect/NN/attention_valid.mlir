// RUN: cleave-opt %s | cleave-opt | FileCheck %s

// CHECK-LABEL: func @dropped
func.func @dropped(%q: tensor<2x5x3x1x4xf32>, %k: tensor<2x7x3x4xf32>, %keys: tensor<2x3x1xi64>, %mask: tensor<2x7xi1>,
                   %qi: tensor<5xi64>, %ki: tensor<7xi64>)
    -> (tensor<2x5x3x1x4xf32>, tensor<2x7x3x4xf32>, tensor<2x7x3x4xf32>) {
  // CHECK: nn.attention %{{.*}}, %{{.*}}, %{{.*}} key_mask(%{{.*}}) dropout(%{{.*}}, %{{.*}}, %{{.*}}) p = 1.000000e-01 scale = 5.000000e-01 causal
  %o, %lse = nn.attention %q, %k, %k key_mask(%mask) dropout(%keys, %qi, %ki) p = 0.1 scale = 0.5 causal
    : (tensor<2x5x3x1x4xf32>, tensor<2x7x3x4xf32>, tensor<2x7x3x4xf32>, tensor<2x7xi1>, tensor<2x3x1xi64>, tensor<5xi64>, tensor<7xi64>)
    -> (tensor<2x5x3x1x4xf32>, tensor<2x3x1x5xf32>)
  // CHECK: nn.attention_grad {{.*}} dropout(%{{.*}}, %{{.*}}, %{{.*}}) p = 1.000000e-01 scale
  %dq, %dk, %dv = nn.attention_grad %o, %q, %k, %k, %o, %lse dropout(%keys, %qi, %ki) p = 0.1 scale = 0.5
    : (tensor<2x5x3x1x4xf32>, tensor<2x5x3x1x4xf32>, tensor<2x7x3x4xf32>, tensor<2x7x3x4xf32>, tensor<2x5x3x1x4xf32>, tensor<2x3x1x5xf32>, tensor<2x3x1xi64>, tensor<5xi64>, tensor<7xi64>)
    -> (tensor<2x5x3x1x4xf32>, tensor<2x7x3x4xf32>, tensor<2x7x3x4xf32>)
  return %dq, %dk, %dv : tensor<2x5x3x1x4xf32>, tensor<2x7x3x4xf32>, tensor<2x7x3x4xf32>
}

// CHECK-LABEL: func @whole
func.func @whole(%q: tensor<2x5x3x1x4xf32>, %k: tensor<2x7x3x4xf32>) -> tensor<2x5x3x1x4xf32> {
  // CHECK-NOT: dropout
  // CHECK: return
  %o, %lse = nn.attention %q, %k, %k scale = 0.5
    : (tensor<2x5x3x1x4xf32>, tensor<2x7x3x4xf32>, tensor<2x7x3x4xf32>) -> (tensor<2x5x3x1x4xf32>, tensor<2x3x1x5xf32>)
  return %o : tensor<2x5x3x1x4xf32>
}
