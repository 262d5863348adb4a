// RUN: cleave-opt %s -split-input-file --pass-pipeline="builtin.module(func.func(nn-limit-choices{capacity=0.5 scope=microbatch}))" -verify-diagnostics | FileCheck %s
// RUN: not cleave-opt %s -split-input-file --pass-pipeline="builtin.module(func.func(nn-limit-choices{capacity=1 scope=batch}))" 2>&1 | FileCheck %s --check-prefix=SCOPE
// SCOPE: scope is 'batch'; expected sequence or microbatch

// 4 sequences have 24 slots (token-expert pairs) in all; each of 2 experts takes the
// first 6. The loads of earlier samples are counted for each sample.
// CHECK-LABEL: func @slots
// CHECK-SAME:    %[[IDS:[^ ]+]]: tensor<4x3x2xi64>
// CHECK:         %[[POSITIONS:.+]] = nn.iota dim = 0 : tensor<3xi64>
// CHECK:         %[[HITS:.+]] = arith.cmpi eq, %{{.+}}, %{{.+}} : tensor<4x3x2x2xi64>
// CHECK:         %[[ONES:.+]] = arith.extui %[[HITS]]
// CHECK:         %[[LOADS:.+]] = nn.reduce sum %[[ONES]] dims = [1, 2] : tensor<4x3x2x2xi64> -> tensor<4x2xi64>
// CHECK:         %[[SAMPLES:.+]] = nn.iota dim = 0 : tensor<4xi64>
// CHECK:         %[[PLACE:.+]] = nn.position_in_expert %[[IDS]], %[[POSITIONS]] after(%[[LOADS]], %[[SAMPLES]]) experts = 2
// CHECK:         %[[MOST:.+]] = arith.constant dense<6>
// CHECK:         arith.cmpi slt, %[[PLACE]], %[[MOST]]
// expected-remark @below {{an expert takes 6 of the 24 slots of a microbatch (capacity 0.5, 2 experts); slots beyond are dropped}}
func.func @slots(%x: tensor<4x3x2x6xf32>, %w: tensor<2x6x8xf32>, %ids: tensor<4x3x2xi64>) -> tensor<4x3x2x8xf32> {
  %0 = nn.grouped_dot %x, %w, %ids : tensor<4x3x2x6xf32>, tensor<2x6x8xf32>, tensor<4x3x2xi64> -> tensor<4x3x2x8xf32>
  return %0 : tensor<4x3x2x8xf32>
}

// -----

// A single sample has no earlier ones.
// CHECK-LABEL: func @one
// CHECK-NOT:     after
// expected-remark @below {{an expert takes 2 of the 6 slots of a microbatch}}
func.func @one(%x: tensor<1x3x2x6xf32>, %w: tensor<2x6x8xf32>, %ids: tensor<1x3x2xi64>) -> tensor<1x3x2x8xf32> {
  %0 = nn.grouped_dot %x, %w, %ids : tensor<1x3x2x6xf32>, tensor<2x6x8xf32>, tensor<1x3x2xi64> -> tensor<1x3x2x8xf32>
  return %0 : tensor<1x3x2x8xf32>
}

// -----

// Samples without positions are ordered by their index.
// CHECK-LABEL: func @rows
// CHECK:         %[[ROW:.+]] = nn.reshape %{{.+}} : tensor<5x2xi64> -> tensor<1x5x2xi64>
// CHECK:         nn.position_in_expert %[[ROW]], %{{.+}} experts = 4
func.func @rows(%x: tensor<5x2x6xf32>, %w: tensor<4x6x8xf32>, %scores: tensor<5x4xf32>) -> tensor<5x2x8xf32> {
  // expected-remark @below {{an expert takes 2 of the 10 slots of a microbatch}}
  %best, %ids = nn.top_k %scores k = 2 : tensor<5x4xf32> -> tensor<5x2xf32>, tensor<5x2xi64>
  %0 = nn.grouped_dot %x, %w, %ids : tensor<5x2x6xf32>, tensor<4x6x8xf32>, tensor<5x2xi64> -> tensor<5x2x8xf32>
  return %0 : tensor<5x2x8xf32>
}
