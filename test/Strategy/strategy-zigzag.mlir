// RUN: cleave-opt %s -split-input-file -strategy-zigzag=ranks=2 -canonicalize -cse -verify-diagnostics | FileCheck %s

// Each tile of four positions is two runs: 2 3 4 5 | 0 1 6 7.
// CHECK-LABEL: func @causal(
// CHECK-SAME:    %[[Q:[a-z0-9]+]]: tensor<1x8x1x1x2xf32>, %[[K:[a-z0-9]+]]: tensor<1x8x1x2xf32>
// CHECK:         %[[ORDER:.+]] = arith.select
// CHECK-DAG:     %[[QZ:.+]] = nn.gather %[[Q]], %[[ORDER]] dim = 1
// CHECK-DAG:     %[[KZ:.+]] = nn.gather %[[K]], %[[ORDER]] dim = 1
// CHECK:         %[[BACK:.+]] = arith.select
// CHECK:         %[[O:.+]], %{{.+}} = nn.attention %[[QZ]], %[[KZ]], %[[KZ]] positions(%[[ORDER]], %[[ORDER]]) scale = 5.000000e-01 causal
// CHECK:         %[[R:.+]] = nn.gather %[[O]], %[[BACK]] dim = 1
// CHECK:         return %[[R]]
func.func @causal(%q: tensor<1x8x1x1x2xf32>, %k: tensor<1x8x1x2xf32>) -> tensor<1x8x1x1x2xf32> {
  %o, %lse = nn.attention %q, %k, %k scale = 0.5 causal : (tensor<1x8x1x1x2xf32>, tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> (tensor<1x8x1x1x2xf32>, tensor<1x1x1x8xf32>)
  return %o : tensor<1x8x1x1x2xf32>
}

// -----

// Without a causal mask the load is balanced already; windows are left unchanged too.
// CHECK-LABEL: func @others(
// CHECK-NOT:     nn.gather
// CHECK:         return
func.func @others(%q: tensor<1x8x1x1x2xf32>, %k: tensor<1x8x1x2xf32>) -> (tensor<1x8x1x1x2xf32>, tensor<1x8x1x1x2xf32>) {
  %o, %lse = nn.attention %q, %k, %k scale = 0.5 : (tensor<1x8x1x1x2xf32>, tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> (tensor<1x8x1x1x2xf32>, tensor<1x1x1x8xf32>)
  %p, %lse1 = nn.attention %q, %k, %k scale = 0.5 causal window = 2 : (tensor<1x8x1x1x2xf32>, tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> (tensor<1x8x1x1x2xf32>, tensor<1x1x1x8xf32>)
  return %o, %p : tensor<1x8x1x1x2xf32>, tensor<1x8x1x1x2xf32>
}

// -----

// A difference of neighbouring positions depends on their order.
// CHECK-LABEL: func @ordered(
// CHECK-NOT:     nn.gather
// CHECK:         return
func.func @ordered(%q: tensor<1x8x1x1x2xf32>, %k: tensor<1x8x1x2xf32>) -> tensor<1x7x1x1x2xf32> {
  %o, %lse = nn.attention %q, %k, %k scale = 0.5 causal : (tensor<1x8x1x1x2xf32>, tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> (tensor<1x8x1x1x2xf32>, tensor<1x1x1x8xf32>)
  // expected-warning @+1 {{positions stay in order, so that causal attention costs the last of 2 ranks the most: 'nn.slice' depends on their order or joins them with another dimension}}
  %a = nn.slice %o [0, 1, 0, 0, 0] [1, 7, 1, 1, 2] [1, 1, 1, 1, 1] : tensor<1x8x1x1x2xf32> -> tensor<1x7x1x1x2xf32>
  return %a : tensor<1x7x1x1x2xf32>
}

// -----

// Rows of a longer position table are reordered; their gradient is scattered back to the original rows.
// CHECK-LABEL: func @table(
// CHECK-SAME:    %[[W:[a-z0-9]+]]: tensor<12x2xf32>
// CHECK:         %[[ROWS:.+]] = nn.slice %[[W]] [2, 0] [8, 2] [1, 1]
// CHECK:         %[[TAKEN:.+]] = nn.gather %[[ROWS]], %[[ORDER:.+]] dim = 0 {nn.reorder}
// CHECK:         nn.broadcast %[[TAKEN]] dims = [1, 4]
// CHECK:         nn.attention
// CHECK:         %[[D:.+]] = nn.reduce sum
// CHECK:         %[[AT:.+]] = arith.addi %[[ORDER]]
// CHECK:         %[[G:.+]] = nn.scatter_add %[[AT]], %[[D]] dim = 0 : tensor<8xi64>, tensor<8x2xf32> -> tensor<12x2xf32>
// CHECK-NOT:     nn.pad
// CHECK:         return %[[G]]
func.func @table(%w: tensor<12x2xf32> {nn.name = "w", nn.role = #nn.role<parameter>}, %q: tensor<1x8x1x1x2xf32>) -> tensor<12x2xf32> {
  %rows = nn.slice %w [2, 0] [8, 2] [1, 1] : tensor<12x2xf32> -> tensor<8x2xf32>
  %b = nn.broadcast %rows dims = [1, 4] : tensor<8x2xf32> -> tensor<1x8x1x1x2xf32>
  %a = arith.addf %q, %b : tensor<1x8x1x1x2xf32>
  %k = nn.reshape %a : tensor<1x8x1x1x2xf32> -> tensor<1x8x1x2xf32>
  %o, %lse = nn.attention %a, %k, %k scale = 0.5 causal : (tensor<1x8x1x1x2xf32>, tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> (tensor<1x8x1x1x2xf32>, tensor<1x1x1x8xf32>)
  %d = nn.reduce sum %o dims = [0, 2, 3] : tensor<1x8x1x1x2xf32> -> tensor<8x2xf32>
  %g = nn.pad %d low = [2, 0] high = [2, 0] value = 0.0 : tensor<8x2xf32> -> tensor<12x2xf32>
  return %g : tensor<12x2xf32>
}

// -----

// Positions are merged with features into a dimension that a parameter also has.
// CHECK-LABEL: func @joined(
// CHECK-NOT:     nn.gather
// CHECK:         return
func.func @joined(%w: tensor<16x3xf32> {nn.name = "w", nn.role = #nn.role<parameter>}, %q: tensor<1x8x1x1x2xf32>, %k: tensor<1x8x1x2xf32>) -> tensor<1x3xf32> {
  %o, %lse = nn.attention %q, %k, %k scale = 0.5 causal : (tensor<1x8x1x1x2xf32>, tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> (tensor<1x8x1x1x2xf32>, tensor<1x1x1x8xf32>)
  %f = nn.reshape %o : tensor<1x8x1x1x2xf32> -> tensor<1x16xf32>
  // expected-warning @+1 {{positions stay in order, so that causal attention costs the last of 2 ranks the most: 'nn.einsum' depends on their order or joins them with another dimension}}
  %y = nn.einsum "bf,fc->bc" %f, %w : tensor<1x16xf32>, tensor<16x3xf32> -> tensor<1x3xf32>
  return %y : tensor<1x3xf32>
}

// -----

// Positions are merged with samples; no later operation depends on their order.
// CHECK-LABEL: func @flattened(
// CHECK:         nn.gather %{{.+}} dim = 1 {nn.reorder}
// CHECK:         return
func.func @flattened(%w: tensor<2x3xf32> {nn.name = "w", nn.role = #nn.role<parameter>}, %q: tensor<4x8x1x1x2xf32>, %k: tensor<4x8x1x2xf32>) -> tensor<2x3xf32> {
  %o, %lse = nn.attention %q, %k, %k scale = 0.5 causal : (tensor<4x8x1x1x2xf32>, tensor<4x8x1x2xf32>, tensor<4x8x1x2xf32>) -> (tensor<4x8x1x1x2xf32>, tensor<4x1x1x8xf32>)
  %f = nn.reshape %o : tensor<4x8x1x1x2xf32> -> tensor<32x2xf32>
  %y = nn.einsum "tf,fc->tc" %f, %w : tensor<32x2xf32>, tensor<2x3xf32> -> tensor<32x3xf32>
  %g = nn.einsum "tf,tc->fc" %f, %y : tensor<32x2xf32>, tensor<32x3xf32> -> tensor<2x3xf32>
  return %g : tensor<2x3xf32>
}

// -----

// Experts with limited capacity accept tokens in the order of positions, so they read the original positions.
// CHECK-LABEL: func @capacity(
// CHECK-SAME:    %[[Q:[a-z0-9]+]]: tensor<2x8x1x1x2xf32>, %[[K:[a-z0-9]+]]: tensor<2x8x1x2xf32>, %[[SCORES:[a-z0-9]+]]: tensor<2x8x3xf32>
// CHECK:         %[[ORDERED:.+]] = nn.gather %[[SCORES]], %[[ORDER:.+]] dim = 1 {nn.reorder}
// CHECK:         %[[IDS:.+]] = nn.argmax %[[ORDERED]]
// CHECK:         nn.position_in_expert %[[IDS]], %[[ORDER]] experts = 3
// CHECK:         nn.gather %{{.+}} dim = 1 {nn.reorder}
func.func @capacity(%q: tensor<2x8x1x1x2xf32>, %k: tensor<2x8x1x2xf32>, %scores: tensor<2x8x3xf32>, %w: tensor<3x2x2xf32>) -> tensor<2x8x2xf32> {
  %o, %lse = nn.attention %q, %k, %k scale = 0.5 causal : (tensor<2x8x1x1x2xf32>, tensor<2x8x1x2xf32>, tensor<2x8x1x2xf32>) -> (tensor<2x8x1x1x2xf32>, tensor<2x1x1x8xf32>)
  %x = nn.reshape %o : tensor<2x8x1x1x2xf32> -> tensor<2x8x2xf32>
  %ids = nn.argmax %scores dim = 2 : tensor<2x8x3xf32> -> tensor<2x8xi64>
  %positions = nn.iota dim = 0 : tensor<8xi64>
  %place = nn.position_in_expert %ids, %positions experts = 3 : (tensor<2x8xi64>, tensor<8xi64>) -> tensor<2x8xi64>
  %most = arith.constant dense<2> : tensor<2x8xi64>
  %fits = arith.cmpi slt, %place, %most : tensor<2x8xi64>
  %none = arith.constant dense<-1> : tensor<2x8xi64>
  %limited = arith.select %fits, %ids, %none : tensor<2x8xi1>, tensor<2x8xi64>
  %y = nn.grouped_dot %x, %w, %limited : tensor<2x8x2xf32>, tensor<3x2x2xf32>, tensor<2x8xi64> -> tensor<2x8x2xf32>
  return %y : tensor<2x8x2xf32>
}
