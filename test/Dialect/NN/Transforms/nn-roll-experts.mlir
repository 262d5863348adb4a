// RUN: cleave-opt %s -split-input-file -nn-roll-experts -canonicalize -cse | FileCheck %s

// Two experts on all tokens, each weighted by what its comparison keeps.
// CHECK-LABEL: func @dense
// CHECK-SAME:    (%[[W:.+]]: tensor<2x5x7xf32> {nn.name = "w", nn.parts = [#nn.part<name = "w">, #nn.part<name = "v">], nn.role = #nn.role<parameter>}, %[[X:.+]]: tensor<3x5xf32>, %[[SCORES:.+]]: tensor<3x2xf32>)
// CHECK:         %[[ROWS:.+]] = nn.broadcast %[[X]] dims = [0, 2]
// CHECK:         %[[P:.+]], %[[IDS:.+]] = nn.top_k %[[SCORES]]
// CHECK:         %[[Y:.+]] = nn.grouped_dot %[[ROWS]], %[[W]], %[[IDS]]
// CHECK:         nn.einsum "abc,ab->ac" %[[Y]], %[[P]]
func.func @dense(%w: tensor<5x7xf32> {nn.name = "w", nn.role = #nn.role<parameter>}, %v: tensor<5x7xf32> {nn.name = "v", nn.role = #nn.role<parameter>},
                 %x: tensor<3x5xf32>, %scores: tensor<3x2xf32>) -> tensor<3x7xf32> {
  %zero = arith.constant dense<0> : tensor<3x2xi64>
  %one = arith.constant dense<1> : tensor<3x2xi64>
  %p, %ids = nn.top_k %scores k = 2 : tensor<3x2xf32> -> tensor<3x2xf32>, tensor<3x2xi64>
  %0 = arith.cmpi eq, %ids, %zero : tensor<3x2xi64>
  %1 = arith.uitofp %0 : tensor<3x2xi1> to tensor<3x2xf32>
  %2 = arith.mulf %p, %1 : tensor<3x2xf32>
  %3 = nn.reduce sum %2 dims = [1] : tensor<3x2xf32> -> tensor<3xf32>
  %4 = nn.broadcast %3 dims = [0] : tensor<3xf32> -> tensor<3x7xf32>
  %5 = nn.einsum "ab,bc->ac" %x, %w : tensor<3x5xf32>, tensor<5x7xf32> -> tensor<3x7xf32>
  %6 = arith.mulf %5, %4 : tensor<3x7xf32>
  %7 = arith.cmpi eq, %ids, %one : tensor<3x2xi64>
  %8 = arith.uitofp %7 : tensor<3x2xi1> to tensor<3x2xf32>
  %9 = arith.mulf %p, %8 : tensor<3x2xf32>
  %10 = nn.reduce sum %9 dims = [1] : tensor<3x2xf32> -> tensor<3xf32>
  %11 = nn.broadcast %10 dims = [0] : tensor<3xf32> -> tensor<3x7xf32>
  %12 = nn.einsum "ab,bc->ac" %x, %v : tensor<3x5xf32>, tensor<5x7xf32> -> tensor<3x7xf32>
  %13 = arith.mulf %11, %12 : tensor<3x7xf32>
  %14 = arith.addf %13, %6 : tensor<3x7xf32>
  return %14 : tensor<3x7xf32>
}

// -----

// A residual and a shared expert stay beside the sum.
// CHECK-LABEL: func @rest
// CHECK:         %[[REST:.+]] = arith.addf %{{.+}}, %{{.+}} : tensor<3x7xf32>
// CHECK:         %[[SUM:.+]] = nn.reduce sum %{{.+}} dims = [1] : tensor<3x1x7xf32>
// CHECK:         arith.addf %[[REST]], %[[SUM]]
func.func @rest(%w: tensor<5x7xf32> {nn.name = "w", nn.role = #nn.role<parameter>}, %v: tensor<5x7xf32> {nn.name = "v", nn.role = #nn.role<parameter>},
                %x: tensor<3x5xf32>, %scores: tensor<3x2xf32>, %r: tensor<3x7xf32>, %s: tensor<3x7xf32>) -> tensor<3x7xf32> {
  %zero = arith.constant dense<0> : tensor<3xi64>
  %one = arith.constant dense<1> : tensor<3xi64>
  %none = arith.constant dense<0.0> : tensor<3x7xf32>
  %id = nn.argmax %scores dim = 1 : tensor<3x2xf32> -> tensor<3xi64>
  %0 = arith.cmpi eq, %id, %zero : tensor<3xi64>
  %1 = nn.broadcast %0 dims = [0] : tensor<3xi1> -> tensor<3x7xi1>
  %2 = nn.einsum "ab,bc->ac" %x, %w : tensor<3x5xf32>, tensor<5x7xf32> -> tensor<3x7xf32>
  %3 = arith.select %1, %2, %none : tensor<3x7xi1>, tensor<3x7xf32>
  %4 = arith.addf %r, %3 : tensor<3x7xf32>
  %5 = arith.addf %4, %s : tensor<3x7xf32>
  %6 = arith.cmpi eq, %id, %one : tensor<3xi64>
  %7 = nn.broadcast %6 dims = [0] : tensor<3xi1> -> tensor<3x7xi1>
  %8 = nn.einsum "ab,bc->ac" %x, %v : tensor<3x5xf32>, tensor<5x7xf32> -> tensor<3x7xf32>
  %9 = arith.select %7, %8, %none : tensor<3x7xi1>, tensor<3x7xf32>
  %10 = arith.addf %5, %9 : tensor<3x7xf32>
  return %10 : tensor<3x7xf32>
}

// -----

// Stacked matrices and a bias, all experts on all tokens.
// CHECK-LABEL: func @tiled
// CHECK-SAME:    %[[X:.+]]: tensor<3x5xf32>, %[[W:.+]]: tensor<4x5x7xf32>, %[[B:.+]]: tensor<4x7xf32>
// CHECK:         %[[ROWS:.+]] = nn.broadcast %[[X]] dims = [0, 2]
// CHECK:         %[[P:.+]], %[[IDS:.+]] = nn.top_k
// CHECK:         %[[Y:.+]] = nn.grouped_dot %[[ROWS]], %[[W]], %[[IDS]] :
// CHECK:         %[[BIAS:.+]] = nn.gather %[[B]], %[[IDS]] dim = 0
// CHECK:         %[[Z:.+]] = arith.addf %[[Y]], %[[BIAS]]
// CHECK:         nn.einsum "abc,ab->ac" %[[Z]], %[[P]]
func.func @tiled(%x: tensor<3x5xf32>, %w: tensor<4x5x7xf32>, %b: tensor<4x7xf32>, %scores: tensor<3x4xf32>) -> tensor<3x7xf32> {
  %none = arith.constant dense<0.0> : tensor<3x4x2xf32>
  %p, %ids = nn.top_k %scores k = 2 : tensor<3x4xf32> -> tensor<3x2xf32>, tensor<3x2xi64>
  %0 = nn.broadcast %ids dims = [0, 2] : tensor<3x2xi64> -> tensor<3x4x2xi64>
  %1 = nn.iota dim = 0 : tensor<4xi64>
  %2 = nn.broadcast %1 dims = [1] : tensor<4xi64> -> tensor<3x4x2xi64>
  %3 = arith.cmpi eq, %0, %2 : tensor<3x4x2xi64>
  %4 = nn.broadcast %p dims = [0, 2] : tensor<3x2xf32> -> tensor<3x4x2xf32>
  %5 = arith.select %3, %4, %none : tensor<3x4x2xi1>, tensor<3x4x2xf32>
  %6 = nn.reduce sum %5 dims = [2] : tensor<3x4x2xf32> -> tensor<3x4xf32>
  %7 = nn.einsum "ab,cbd->cad" %x, %w : tensor<3x5xf32>, tensor<4x5x7xf32> -> tensor<4x3x7xf32>
  %8 = nn.broadcast %b dims = [0, 2] : tensor<4x7xf32> -> tensor<4x3x7xf32>
  %9 = arith.addf %7, %8 : tensor<4x3x7xf32>
  %10 = nn.einsum "abc,ba->bc" %9, %6 : tensor<4x3x7xf32>, tensor<3x4xf32> -> tensor<3x7xf32>
  return %10 : tensor<3x7xf32>
}

// -----

// Each slot (token-expert pair) gathers its matrix, in which two matrices are stored.
// CHECK-LABEL: func @gathered
// CHECK-SAME:    %[[X:.+]]: tensor<3x5xf32>, %[[W:.+]]: tensor<4x6x5xf32>, %[[IDS:.+]]: tensor<3x2xi64>
// CHECK:         %[[HALF:.+]] = nn.slice %[[W]] [0, 3, 0] [4, 3, 5] [1, 1, 1]
// CHECK:         nn.grouped_dot %{{.+}}, %[[HALF]], %[[IDS]] transposed : {{.*}} -> tensor<3x2x3xf32>
func.func @gathered(%x: tensor<3x5xf32>, %w: tensor<4x6x5xf32>, %ids: tensor<3x2xi64>) -> tensor<3x2x3xf32> {
  %0 = nn.gather %w, %ids dim = 0 : tensor<4x6x5xf32>, tensor<3x2xi64> -> tensor<3x2x6x5xf32>
  %1 = nn.einsum "abcd,ad->abc" %0, %x : tensor<3x2x6x5xf32>, tensor<3x5xf32> -> tensor<3x2x6xf32>
  %2 = nn.slice %1 [0, 0, 3] [3, 2, 3] [1, 1, 1] : tensor<3x2x6xf32> -> tensor<3x2x3xf32>
  return %2 : tensor<3x2x3xf32>
}

// -----

// A tensor that something else reads, too, is read there as a slice.
// CHECK-LABEL: func @also_alone
// CHECK:         nn.slice %{{.+}} [1, 0, 0] [1, 5, 7] [1, 1, 1] : tensor<2x5x7xf32>
func.func @also_alone(%w: tensor<5x7xf32> {nn.name = "w", nn.role = #nn.role<parameter>}, %v: tensor<5x7xf32> {nn.name = "v", nn.role = #nn.role<parameter>})
    -> (tensor<2x5x7xf32>, tensor<5x7xf32>) {
  %0 = nn.reshape %w : tensor<5x7xf32> -> tensor<1x5x7xf32>
  %1 = nn.reshape %v : tensor<5x7xf32> -> tensor<1x5x7xf32>
  %2 = nn.concat %0, %1 dim = 0 : tensor<1x5x7xf32>, tensor<1x5x7xf32> -> tensor<2x5x7xf32>
  %3 = arith.addf %v, %v : tensor<5x7xf32>
  return %2, %3 : tensor<2x5x7xf32>, tensor<5x7xf32>
}

// -----

// Experts that differ in more than their tensors: a sigmoid, and none.
// CHECK-LABEL: func @negative_unlike
// CHECK-NOT:     nn.grouped_dot
func.func @negative_unlike(%w: tensor<5x7xf32> {nn.name = "w", nn.role = #nn.role<parameter>}, %v: tensor<5x7xf32> {nn.name = "v", nn.role = #nn.role<parameter>},
                           %x: tensor<3x5xf32>, %scores: tensor<3x2xf32>) -> tensor<3x7xf32> {
  %zero = arith.constant dense<0> : tensor<3xi64>
  %one = arith.constant dense<1> : tensor<3xi64>
  %none = arith.constant dense<0.0> : tensor<3x7xf32>
  %id = nn.argmax %scores dim = 1 : tensor<3x2xf32> -> tensor<3xi64>
  %0 = arith.cmpi eq, %id, %zero : tensor<3xi64>
  %1 = nn.broadcast %0 dims = [0] : tensor<3xi1> -> tensor<3x7xi1>
  %2 = nn.einsum "ab,bc->ac" %x, %w : tensor<3x5xf32>, tensor<5x7xf32> -> tensor<3x7xf32>
  %3 = nn.sigmoid %2 : tensor<3x7xf32>
  %4 = arith.select %1, %3, %none : tensor<3x7xi1>, tensor<3x7xf32>
  %5 = arith.cmpi eq, %id, %one : tensor<3xi64>
  %6 = nn.broadcast %5 dims = [0] : tensor<3xi1> -> tensor<3x7xi1>
  %7 = nn.einsum "ab,bc->ac" %x, %v : tensor<3x5xf32>, tensor<5x7xf32> -> tensor<3x7xf32>
  %8 = arith.select %6, %7, %none : tensor<3x7xi1>, tensor<3x7xf32>
  %9 = arith.addf %4, %8 : tensor<3x7xf32>
  return %9 : tensor<3x7xf32>
}

// -----

// Ids of which nothing is known: one may belong to no expert.
// CHECK-LABEL: func @negative_any_ids
// CHECK-NOT:     nn.grouped_dot
func.func @negative_any_ids(%w: tensor<5x7xf32> {nn.name = "w", nn.role = #nn.role<parameter>}, %v: tensor<5x7xf32> {nn.name = "v", nn.role = #nn.role<parameter>},
                            %x: tensor<3x5xf32>, %id: tensor<3xi64>) -> tensor<3x7xf32> {
  %zero = arith.constant dense<0> : tensor<3xi64>
  %one = arith.constant dense<1> : tensor<3xi64>
  %none = arith.constant dense<0.0> : tensor<3x7xf32>
  %0 = arith.cmpi eq, %id, %zero : tensor<3xi64>
  %1 = nn.broadcast %0 dims = [0] : tensor<3xi1> -> tensor<3x7xi1>
  %2 = nn.einsum "ab,bc->ac" %x, %w : tensor<3x5xf32>, tensor<5x7xf32> -> tensor<3x7xf32>
  %3 = arith.select %1, %2, %none : tensor<3x7xi1>, tensor<3x7xf32>
  %4 = arith.cmpi eq, %id, %one : tensor<3xi64>
  %5 = nn.broadcast %4 dims = [0] : tensor<3xi1> -> tensor<3x7xi1>
  %6 = nn.einsum "ab,bc->ac" %x, %v : tensor<3x5xf32>, tensor<5x7xf32> -> tensor<3x7xf32>
  %7 = arith.select %5, %6, %none : tensor<3x7xi1>, tensor<3x7xf32>
  %8 = arith.addf %3, %7 : tensor<3x7xf32>
  return %8 : tensor<3x7xf32>
}

// -----

// Of each token's three choices only two are used: no product has rows for three.
// CHECK-LABEL: func @cut
// CHECK-NOT:     nn.grouped_dot {{.*}}tensor<3x3xi64>
// CHECK:         return
func.func @cut(%w: tensor<5x7xf32> {nn.name = "w", nn.role = #nn.role<parameter>}, %v: tensor<5x7xf32> {nn.name = "v", nn.role = #nn.role<parameter>},
               %x: tensor<3x5xf32>, %scores: tensor<3x4xf32>) -> tensor<3x7xf32> {
  %zero = arith.constant dense<0> : tensor<3x2xi64>
  %one = arith.constant dense<1> : tensor<3x2xi64>
  %p, %all = nn.top_k %scores k = 3 : tensor<3x4xf32> -> tensor<3x3xf32>, tensor<3x3xi64>
  %ids = nn.slice %all [0, 0] [3, 2] [1, 1] : tensor<3x3xi64> -> tensor<3x2xi64>
  %0 = arith.cmpi eq, %ids, %zero : tensor<3x2xi64>
  %1 = arith.uitofp %0 : tensor<3x2xi1> to tensor<3x2xf32>
  %3 = nn.reduce sum %1 dims = [1] : tensor<3x2xf32> -> tensor<3xf32>
  %4 = nn.broadcast %3 dims = [0] : tensor<3xf32> -> tensor<3x7xf32>
  %5 = nn.einsum "ab,bc->ac" %x, %w : tensor<3x5xf32>, tensor<5x7xf32> -> tensor<3x7xf32>
  %6 = arith.mulf %5, %4 : tensor<3x7xf32>
  %7 = arith.cmpi eq, %ids, %one : tensor<3x2xi64>
  %8 = arith.uitofp %7 : tensor<3x2xi1> to tensor<3x2xf32>
  %10 = nn.reduce sum %8 dims = [1] : tensor<3x2xf32> -> tensor<3xf32>
  %11 = nn.broadcast %10 dims = [0] : tensor<3xf32> -> tensor<3x7xf32>
  %12 = nn.einsum "ab,bc->ac" %x, %v : tensor<3x5xf32>, tensor<5x7xf32> -> tensor<3x7xf32>
  %13 = arith.mulf %11, %12 : tensor<3x7xf32>
  %14 = arith.addf %13, %6 : tensor<3x7xf32>
  return %14 : tensor<3x7xf32>
}

// -----

// An expert that computes nothing has zeros for an term: the sum stays as it is.
// CHECK-LABEL: func @negative_empty_expert
// CHECK-NOT:     nn.grouped_dot
// CHECK:         return
func.func @negative_empty_expert(%w: tensor<5x7xf32> {nn.name = "w", nn.role = #nn.role<parameter>}, %v: tensor<5x7xf32> {nn.name = "v", nn.role = #nn.role<parameter>},
                                 %x: tensor<3x5xf32>, %scores: tensor<3x3xf32>) -> tensor<3x7xf32> {
  %zero = arith.constant dense<0> : tensor<3xi64>
  %two = arith.constant dense<2> : tensor<3xi64>
  %none = arith.constant dense<0.0> : tensor<3x7xf32>
  %id = nn.argmax %scores dim = 1 : tensor<3x3xf32> -> tensor<3xi64>
  %0 = arith.cmpi eq, %id, %zero : tensor<3xi64>
  %1 = nn.broadcast %0 dims = [0] : tensor<3xi1> -> tensor<3x7xi1>
  %2 = nn.einsum "ab,bc->ac" %x, %w : tensor<3x5xf32>, tensor<5x7xf32> -> tensor<3x7xf32>
  %3 = arith.select %1, %2, %none : tensor<3x7xi1>, tensor<3x7xf32>
  %4 = arith.addf %none, %3 : tensor<3x7xf32>
  %5 = arith.addf %4, %none : tensor<3x7xf32>
  %6 = arith.cmpi eq, %id, %two : tensor<3xi64>
  %7 = nn.broadcast %6 dims = [0] : tensor<3xi1> -> tensor<3x7xi1>
  %8 = nn.einsum "ab,bc->ac" %x, %v : tensor<3x5xf32>, tensor<5x7xf32> -> tensor<3x7xf32>
  %9 = arith.select %7, %8, %none : tensor<3x7xi1>, tensor<3x7xf32>
  %10 = arith.addf %5, %9 : tensor<3x7xf32>
  return %10 : tensor<3x7xf32>
}
