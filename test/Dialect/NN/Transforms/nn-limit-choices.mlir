// RUN: cleave-opt %s -split-input-file --pass-pipeline="builtin.module(func.func(nn-limit-choices{capacity=1}))" -verify-diagnostics | FileCheck %s

// 6 slots of a sequence, 2 experts: each takes 3, the first ones; a bias goes with
// them, weights that are read by the same choice do not.
// CHECK-LABEL: func @slots
// CHECK-SAME:    %[[X:.+]]: tensor<4x3x2x6xf32>, %[[W:.+]]: tensor<2x6x8xf32>, %[[B:.+]]: tensor<2x8xf32>, %[[T:.+]]: tensor<5x8xf32>, %[[IDS:.+]]: tensor<4x3x2xi64>
// CHECK:         %[[FLAT:.+]] = nn.reshape %[[IDS]] : tensor<4x3x2xi64> -> tensor<4x6xi64>
// CHECK:         %[[SAME:.+]] = arith.cmpi eq, %{{.+}} : tensor<4x6x6xi64>
// CHECK:         %[[EARLIER:.+]] = arith.cmpi slt, %{{.+}} : tensor<4x6x6xi64>
// CHECK:         arith.andi %[[SAME]], %[[EARLIER]]
// CHECK:         %[[TAKEN:.+]] = nn.reduce sum %{{.+}} dims = [2] : tensor<4x6x6xi64> -> tensor<4x6xi64>
// CHECK:         %[[FITS:.+]] = arith.cmpi slt, %[[TAKEN]], %[[MOST:.+]] : tensor<4x6xi64>
// CHECK:         %[[CHOSEN:.+]] = arith.select %[[FITS]], %[[FLAT]], %{{.+}} : tensor<4x6xi1>, tensor<4x6xi64>
// CHECK:         %[[LIMITED:.+]] = nn.reshape %[[CHOSEN]] : tensor<4x6xi64> -> tensor<4x3x2xi64>
// CHECK:         nn.grouped_dot %[[X]], %[[W]], %[[LIMITED]]
// CHECK:         nn.gather %[[B]], %[[LIMITED]]
// CHECK:         nn.gather %[[T]], %[[IDS]]
// expected-remark @below {{an expert takes 3 of the 6 slots of a sequence}}
func.func @slots(%x: tensor<4x3x2x6xf32>, %w: tensor<2x6x8xf32>, %b: tensor<2x8xf32>, %t: tensor<5x8xf32>, %ids: tensor<4x3x2xi64>)
    -> (tensor<4x3x2x8xf32>, tensor<4x3x2x8xf32>, tensor<4x3x2x8xf32>) {
  %0 = nn.grouped_dot %x, %w, %ids : tensor<4x3x2x6xf32>, tensor<2x6x8xf32>, tensor<4x3x2xi64> -> tensor<4x3x2x8xf32>
  %1 = nn.gather %b, %ids dim = 0 : tensor<2x8xf32>, tensor<4x3x2xi64> -> tensor<4x3x2x8xf32>
  %2 = nn.gather %t, %ids dim = 0 : tensor<5x8xf32>, tensor<4x3x2xi64> -> tensor<4x3x2x8xf32>
  return %0, %1, %2 : tensor<4x3x2x8xf32>, tensor<4x3x2x8xf32>, tensor<4x3x2x8xf32>
}

// -----

// One expert has room for all.
// CHECK-LABEL: func @negative_one
// CHECK-NOT:     arith
func.func @negative_one(%x: tensor<4x3x2x6xf32>, %w: tensor<1x6x8xf32>, %ids: tensor<4x3x2xi64>) -> tensor<4x3x2x8xf32> {
  %0 = nn.grouped_dot %x, %w, %ids : tensor<4x3x2x6xf32>, tensor<1x6x8xf32>, tensor<4x3x2xi64> -> tensor<4x3x2x8xf32>
  return %0 : tensor<4x3x2x8xf32>
}

// -----

func.func @rows(%x: tensor<5x6xf32>, %w: tensor<2x6x8xf32>, %ids: tensor<5xi64>) -> tensor<5x8xf32> {
  // expected-error @below {{has choices 'tensor<5xi64>', but capacity is that of a sequence: expected choices of [samples, positions, slots]}}
  %0 = nn.grouped_dot %x, %w, %ids : tensor<5x6xf32>, tensor<2x6x8xf32>, tensor<5xi64> -> tensor<5x8xf32>
  return %0 : tensor<5x8xf32>
}

// -----

// expected-error @below {{has no experts whose capacity could be limited: no nn.grouped_dot}}
func.func @dense(%x: tensor<5x6xf32>) -> tensor<5x6xf32> {
  return %x : tensor<5x6xf32>
}
