// RUN: cleave-opt %s -split-input-file --pass-pipeline="builtin.module(func.func(nn-limit-choices{capacity=1}))" -verify-diagnostics | FileCheck %s

// A sequence has 6 slots (token-expert pairs) for 2 experts, each of which takes 3.
// The expert's bias is limited too, weights gathered by the same choice are not.
// CHECK-LABEL: func @slots
// CHECK-SAME:    %[[X:.+]]: tensor<4x3x2x6xf32>, %[[W:.+]]: tensor<2x6x8xf32>, %[[B:.+]]: tensor<2x8xf32>, %[[T:.+]]: tensor<5x8xf32>, %[[IDS:.+]]: tensor<4x3x2xi64>
// CHECK-NEXT:    %[[POSITIONS:.+]] = nn.iota dim = 0 : tensor<3xi64>
// CHECK-NEXT:    %[[PLACE:.+]] = nn.position_in_expert %[[IDS]], %[[POSITIONS]] experts = 2
// CHECK-NEXT:    %[[MOST:.+]] = arith.constant dense<3>
// CHECK-NEXT:    %[[FITS:.+]] = arith.cmpi slt, %[[PLACE]], %[[MOST]]
// CHECK-NEXT:    %[[NONE:.+]] = arith.constant dense<-1>
// CHECK-NEXT:    %[[LIMITED:.+]] = arith.select %[[FITS]], %[[IDS]], %[[NONE]]
// CHECK-NEXT:    nn.grouped_dot %[[X]], %[[W]], %[[LIMITED]]
// CHECK-NEXT:    nn.gather %[[B]], %[[LIMITED]]
// CHECK-NEXT:    nn.gather %[[T]], %[[IDS]]
// expected-remark @below {{an expert takes 3 of the 6 slots of a sequence (capacity 1, 2 experts); slots beyond are dropped}}
func.func @slots(%x: tensor<4x3x2x6xf32>, %w: tensor<2x6x8xf32>, %b: tensor<2x8xf32>, %t: tensor<5x8xf32>, %ids: tensor<4x3x2xi64>)
    -> (tensor<4x3x2x8xf32>, tensor<4x3x2x8xf32>, tensor<4x3x2x8xf32>) {
  %0 = nn.grouped_dot %x, %w, %ids : tensor<4x3x2x6xf32>, tensor<2x6x8xf32>, tensor<4x3x2xi64> -> tensor<4x3x2x8xf32>
  %1 = nn.gather %b, %ids dim = 0 : tensor<2x8xf32>, tensor<4x3x2xi64> -> tensor<4x3x2x8xf32>
  %2 = nn.gather %t, %ids dim = 0 : tensor<5x8xf32>, tensor<4x3x2xi64> -> tensor<4x3x2x8xf32>
  return %0, %1, %2 : tensor<4x3x2x8xf32>, tensor<4x3x2x8xf32>, tensor<4x3x2x8xf32>
}

// -----

// Top-1 routing.
// CHECK-LABEL: func @switch
// CHECK:         %[[IDS:.+]] = nn.argmax
// CHECK:         nn.position_in_expert %[[IDS]], %{{.+}} experts = 2 : (tensor<4x3xi64>, tensor<3xi64>) -> tensor<4x3xi64>
func.func @switch(%x: tensor<4x3x6xf32>, %w: tensor<2x6x8xf32>, %scores: tensor<4x3x2xf32>) -> tensor<4x3x8xf32> {
  // expected-remark @below {{an expert takes 2 of the 3 slots of a sequence}}
  %ids = nn.argmax %scores dim = 2 : tensor<4x3x2xf32> -> tensor<4x3xi64>
  %0 = nn.grouped_dot %x, %w, %ids : tensor<4x3x6xf32>, tensor<2x6x8xf32>, tensor<4x3xi64> -> tensor<4x3x8xf32>
  return %0 : tensor<4x3x8xf32>
}

// -----

// Rows and columns of an image are merged into one sequence of positions.
// CHECK-LABEL: func @image
// CHECK:         %[[FLAT:.+]] = nn.reshape %{{.+}} : tensor<4x3x5x2xi64> -> tensor<4x15x2xi64>
// CHECK:         nn.position_in_expert %[[FLAT]]
// CHECK:         nn.reshape %{{.+}} : tensor<4x15x2xi64> -> tensor<4x3x5x2xi64>
// expected-remark @below {{an expert takes 15 of the 30 slots of a sequence}}
func.func @image(%x: tensor<4x3x5x2x6xf32>, %w: tensor<2x6x8xf32>, %ids: tensor<4x3x5x2xi64>) -> tensor<4x3x5x2x8xf32> {
  %0 = nn.grouped_dot %x, %w, %ids : tensor<4x3x5x2x6xf32>, tensor<2x6x8xf32>, tensor<4x3x5x2xi64> -> tensor<4x3x5x2x8xf32>
  return %0 : tensor<4x3x5x2x8xf32>
}

// -----

// A single expert has room for all slots (token-expert pairs).
// CHECK-LABEL: func @negative_one
// CHECK-NOT:     arith
func.func @negative_one(%x: tensor<4x3x2x6xf32>, %w: tensor<1x6x8xf32>, %ids: tensor<4x3x2xi64>) -> tensor<4x3x2x8xf32> {
  %0 = nn.grouped_dot %x, %w, %ids : tensor<4x3x2x6xf32>, tensor<1x6x8xf32>, tensor<4x3x2xi64> -> tensor<4x3x2x8xf32>
  return %0 : tensor<4x3x2x8xf32>
}

// -----

func.func @rows(%x: tensor<5x6xf32>, %w: tensor<2x6x8xf32>, %ids: tensor<5xi64>) -> tensor<5x8xf32> {
  // expected-error @below {{has choices 'tensor<5xi64>', but capacity is that of a sequence: expected choices of [samples, positions, slots] or [samples, positions]; with parallel.expert.capacity_scope = "microbatch" it is that of all}}
  %0 = nn.grouped_dot %x, %w, %ids : tensor<5x6xf32>, tensor<2x6x8xf32>, tensor<5xi64> -> tensor<5x8xf32>
  return %0 : tensor<5x8xf32>
}

// -----

// The batch dimension of one sample has been folded away.
// CHECK-LABEL: func @one_sample
// CHECK:         nn.reshape %{{.+}} : tensor<5x2xi64> -> tensor<1x5x2xi64>
func.func @one_sample(%tokens: tensor<1x5xi64> {nn.name = "tokens", nn.role = #nn.role<tokens>}, %x: tensor<5x2x6xf32>, %w: tensor<4x6x8xf32>, %scores: tensor<5x4xf32>) -> tensor<5x2x8xf32> {
  // expected-remark @below {{an expert takes 3 of the 10 slots of a sequence}}
  %best, %ids = nn.top_k %scores k = 2 : tensor<5x4xf32> -> tensor<5x2xf32>, tensor<5x2xi64>
  %0 = nn.grouped_dot %x, %w, %ids : tensor<5x2x6xf32>, tensor<4x6x8xf32>, tensor<5x2xi64> -> tensor<5x2x8xf32>
  return %0 : tensor<5x2x8xf32>
}

// -----

// Samples and positions are merged into one dimension.
func.func @joined(%tokens: tensor<2x5xi64> {nn.name = "tokens", nn.role = #nn.role<tokens>}, %x: tensor<10x2x6xf32>, %w: tensor<4x6x8xf32>, %scores: tensor<10x4xf32>) -> tensor<10x2x8xf32> {
  %best, %ids = nn.top_k %scores k = 2 : tensor<10x4xf32> -> tensor<10x2xf32>, tensor<10x2xi64>
  // expected-error @below {{has choices 'tensor<10x2xi64>', but capacity is that of a sequence}}
  %0 = nn.grouped_dot %x, %w, %ids : tensor<10x2x6xf32>, tensor<4x6x8xf32>, tensor<10x2xi64> -> tensor<10x2x8xf32>
  return %0 : tensor<10x2x8xf32>
}

// -----

// Positions precede samples.
func.func @positions_first(%x: tensor<3x4x2x6xf32> {nn.name = "x", nn.role = #nn.role<input>, nn.batch_dim = 1 : i64}, %w: tensor<2x6x8xf32>, %scores: tensor<3x4x2x5xf32> {nn.name = "scores", nn.role = #nn.role<input>, nn.batch_dim = 1 : i64}) -> tensor<3x4x2x8xf32> {
  %ids = nn.argmax %scores dim = 3 : tensor<3x4x2x5xf32> -> tensor<3x4x2xi64>
  // expected-error @below {{but capacity is that of a sequence}}
  %0 = nn.grouped_dot %x, %w, %ids : tensor<3x4x2x6xf32>, tensor<2x6x8xf32>, tensor<3x4x2xi64> -> tensor<3x4x2x8xf32>
  return %0 : tensor<3x4x2x8xf32>
}

// -----

// expected-error @below {{has no experts whose capacity could be limited: no nn.grouped_dot}}
func.func @dense(%x: tensor<5x6xf32>) -> tensor<5x6xf32> {
  return %x : tensor<5x6xf32>
}
