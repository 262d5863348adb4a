// RUN: cleave-opt %s --split-input-file --nn-raise-composites | FileCheck %s

// With a batch of one sample the products have no batch dimension: shared labels are heads.

// CHECK-LABEL: func @one_sample
// CHECK:         nn.attention {{.*}} : (tensor<1x6x4x1x8xf32>, tensor<1x6x4x8xf32>, tensor<1x6x4x8xf32>)
func.func @one_sample(%tokens: tensor<1x6xi64> {nn.name = "tokens", nn.role = #nn.role<tokens>},
                      %q: tensor<4x6x8xf32>, %k: tensor<4x6x8xf32>, %v: tensor<4x6x8xf32>) -> tensor<4x6x8xf32> {
  %scores = nn.einsum "nsd,ntd->nst" %q, %k : tensor<4x6x8xf32>, tensor<4x6x8xf32> -> tensor<4x6x6xf32>
  %p = nn.softmax %scores : tensor<4x6x6xf32>
  %o = nn.einsum "nst,ntd->nsd" %p, %v : tensor<4x6x6xf32>, tensor<4x6x8xf32> -> tensor<4x6x8xf32>
  return %o : tensor<4x6x8xf32>
}

// -----

// CHECK-LABEL: func @one_head
// CHECK:         nn.attention {{.*}} : (tensor<4x6x1x1x8xf32>, tensor<4x6x1x8xf32>, tensor<4x6x1x8xf32>)
func.func @one_head(%tokens: tensor<4x6xi64> {nn.name = "tokens", nn.role = #nn.role<tokens>},
                    %q: tensor<4x6x8xf32>, %k: tensor<4x6x8xf32>, %v: tensor<4x6x8xf32>) -> tensor<4x6x8xf32> {
  %scores = nn.einsum "nsd,ntd->nst" %q, %k : tensor<4x6x8xf32>, tensor<4x6x8xf32> -> tensor<4x6x6xf32>
  %p = nn.softmax %scores : tensor<4x6x6xf32>
  %o = nn.einsum "nst,ntd->nsd" %p, %v : tensor<4x6x6xf32>, tensor<4x6x8xf32> -> tensor<4x6x8xf32>
  return %o : tensor<4x6x8xf32>
}
