// RUN: cleave-opt %s --split-input-file --strategy-sequence="ulysses=u feature-axes=t" | FileCheck %s
// RUN: cleave-opt %s --split-input-file --strategy-sequence="ring=r feature-axes=t" | FileCheck %s --check-prefix=RING
// RUN: cleave-opt %s --split-input-file --strategy-sequence="ulysses=u ring=r feature-axes=t" | FileCheck %s --check-prefix=BOTH

// Inside attention positions are whole and KV heads are split. Residuals are saved in
// this layout. In ring attention a causal mask compares positions.
dist.mesh @mesh <["r"=2, "u"=2, "t"=1]>

// CHECK-LABEL: func @loss_grad
// CHECK-SAME:    (%[[W:[a-z0-9]+]]: {{.*}}, %[[X:[a-z0-9]+]]:
// CHECK-NOT:     nn.iota
// CHECK:         %[[Q:.+]] = nn.einsum "bsh,hnd->bsnd"
// CHECK:         %[[R:.+]] = nn.reshape %[[Q]]
// CHECK-DAG:     %[[Q0:.+]] = dist.constrain %[[R]] <@mesh, [{?}, {"u"}, {?}, {?}, {?}]>
// CHECK-DAG:     %[[Q1:.+]] = dist.constrain %[[Q0]] <@mesh, [{?}, {}, {"u", ?}, {?}, {?}]>
// CHECK-DAG:     %[[K0:.+]] = dist.constrain %[[Q]] <@mesh, [{?}, {"u"}, {?}, {?}]>
// CHECK-DAG:     %[[K1:.+]] = dist.constrain %[[K0]] <@mesh, [{?}, {}, {"u", ?}, {?}]>
// CHECK-DAG:     %[[KS:.+]] = nn.save %[[K1]]
// CHECK-DAG:     %[[QS:.+]] = nn.save %[[Q1]]
// CHECK:         %[[O:.+]], %[[L:.+]] = nn.attention %[[Q1]], %[[K1]], %[[K1]] scale = 5.000000e-01 causal
// CHECK-DAG:     %[[O1:.+]] = dist.constrain %[[O]] <@mesh, [{?}, {}, {"u", ?}, {?}, {?}]>
// CHECK-DAG:     %[[O0:.+]] = dist.constrain %[[O1]] <@mesh, [{?}, {"u"}, {?}, {?}, {?}]>
// CHECK-DAG:     %[[L1:.+]] = dist.constrain %[[L]] <@mesh, [{?}, {"u", ?}, {?}, {}]>
// CHECK-DAG:     nn.save %[[O1]]
// CHECK-DAG:     nn.save %[[L1]]
// CHECK:         %[[E:.+]] = math.exp %[[O0]]
// CHECK:         %[[C0:.+]] = dist.constrain %[[E]] <@mesh, [{?}, {"u"}, {?}, {?}, {?}]>
// CHECK:         %[[C1:.+]] = dist.constrain %[[C0]] <@mesh, [{?}, {}, {"u", ?}, {?}, {?}]>
// CHECK:         %[[DQ:.+]], %[[DK:.+]], %{{.+}} = nn.attention_grad %[[C1]], %[[QS]], %[[KS]], %[[KS]]
// CHECK-DAG:     %[[DK1:.+]] = dist.constrain %[[DK]] <@mesh, [{?}, {}, {"u", ?}, {?}]>
// CHECK-DAG:     dist.constrain %[[DK1]] <@mesh, [{?}, {"u"}, {?}, {?}]>

// RING-LABEL: func @loss_grad
// RING:         %[[I:.+]] = nn.iota dim = 0 : tensor<6xi64>
// RING-DAG:     %[[Q1:.+]] = dist.constrain %{{.+}} <@mesh, [{?}, {"r"}, {?}, {?}, {?}]>
// RING-DAG:     %[[K1:.+]] = dist.constrain %{{.+}} <@mesh, [{?}, {"r"}, {?}, {?}]>
// RING-DAG:     %[[KS:.+]] = nn.save %[[K1]]
// RING-DAG:     %[[K2:.+]] = dist.constrain %[[K1]] <@mesh, [{?}, {}, {?}, {?}]>
// RING:         nn.attention %[[Q1]], %[[K2]], %[[K2]] positions(%[[I]], %[[I]])
// RING:         %[[K3:.+]] = dist.constrain %[[KS]] <@mesh, [{?}, {}, {?}, {?}]>
// RING:         %{{.+}}, %[[DK:.+]], %{{.+}} = nn.attention_grad %{{.+}}, %{{.+}}, %[[K3]], %[[K3]], {{.*}} positions(%[[I]], %[[I]])
// RING-DAG:     dist.constrain %[[DK]] <@mesh, [{?}, {"r"}, {?}, {?}]>

// BOTH-LABEL: func @loss_grad
// BOTH-DAG:     %[[K0:.+]] = dist.constrain %{{.+}} <@mesh, [{?}, {"r", "u"}, {?}, {?}]>
// BOTH-DAG:     %[[K1:.+]] = dist.constrain %[[K0]] <@mesh, [{?}, {"r"}, {"u", ?}, {?}]>
// BOTH:         %[[K2:.+]] = dist.constrain %[[K1]] <@mesh, [{?}, {}, {"u", ?}, {?}]>
// BOTH:         nn.attention %{{.+}}, %[[K2]], %[[K2]] positions
func.func @loss_grad(%w: tensor<8x3x4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                     %x: tensor<2x6x8xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<2x6x3x1x4xf32>, tensor<2x6x3x4xf32>) {
  %q = nn.einsum "bsh,hnd->bsnd" %x, %w : tensor<2x6x8xf32>, tensor<8x3x4xf32> -> tensor<2x6x3x4xf32>
  %r = nn.reshape %q : tensor<2x6x3x4xf32> -> tensor<2x6x3x1x4xf32>
  %o, %lse = nn.attention %r, %q, %q scale = 0.5 causal
    : (tensor<2x6x3x1x4xf32>, tensor<2x6x3x4xf32>, tensor<2x6x3x4xf32>) -> (tensor<2x6x3x1x4xf32>, tensor<2x3x1x6xf32>)
  %so = nn.save %o : tensor<2x6x3x1x4xf32>
  %sl = nn.save %lse : tensor<2x3x1x6xf32>
  %sq = nn.save %q : tensor<2x6x3x4xf32>
  %sr = nn.reshape %sq : tensor<2x6x3x4xf32> -> tensor<2x6x3x1x4xf32>
  %c = math.exp %o : tensor<2x6x3x1x4xf32>
  %dq, %dk, %dv = nn.attention_grad %c, %sr, %sq, %sq, %so, %sl scale = 0.5 causal
    : (tensor<2x6x3x1x4xf32>, tensor<2x6x3x1x4xf32>, tensor<2x6x3x4xf32>, tensor<2x6x3x4xf32>, tensor<2x6x3x1x4xf32>, tensor<2x3x1x6xf32>)
    -> (tensor<2x6x3x1x4xf32>, tensor<2x6x3x4xf32>, tensor<2x6x3x4xf32>)
  return %dq, %dk : tensor<2x6x3x1x4xf32>, tensor<2x6x3x4xf32>
}

// -----

// Two KV heads on four ranks: two ranks share the queries of each KV head. Each
// has a copy of its keys and values, and a partial sum of their gradients. KV heads
// use the minor part of the axis.
dist.mesh @mesh <["r"=1, "u"=4, "t"=1]>

// CHECK-LABEL: func @copies
// CHECK-DAG:     dist.constrain %{{.+}} <@mesh, [{?}, {}, {"u":(2)2, ?}, {"u":(1)2, ?}, {?}]>
// CHECK-DAG:     dist.constrain %{{.+}} <@mesh, [{?}, {}, {"u":(2)2, ?}, {?}]>
// CHECK:         %{{.+}}, %[[DK:.+]], %{{.+}} = nn.attention_grad
// CHECK-DAG:     dist.constrain %[[DK]] <@mesh, [{?}, {}, {"u":(2)2, ?}, {?}], partial = sum{"u":(1)2}>
func.func @copies(%q: tensor<2x6x2x2x4xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>},
                  %k: tensor<2x6x2x4xf32> {nn.batch_dim = 0 : i64, nn.name = "k", nn.position_dim = 1 : i64, nn.role = #nn.role<input>})
    -> (tensor<2x6x2x4xf32>) {
  %s = math.exp %q : tensor<2x6x2x2x4xf32>
  %t = nn.einsum "bsngd,bsnd->bsngd" %s, %k : tensor<2x6x2x2x4xf32>, tensor<2x6x2x4xf32> -> tensor<2x6x2x2x4xf32>
  %o, %lse = nn.attention %t, %k, %k scale = 0.5
    : (tensor<2x6x2x2x4xf32>, tensor<2x6x2x4xf32>, tensor<2x6x2x4xf32>) -> (tensor<2x6x2x2x4xf32>, tensor<2x2x2x6xf32>)
  %dq, %dk, %dv = nn.attention_grad %s, %t, %k, %k, %o, %lse scale = 0.5
    : (tensor<2x6x2x2x4xf32>, tensor<2x6x2x2x4xf32>, tensor<2x6x2x4xf32>, tensor<2x6x2x4xf32>, tensor<2x6x2x2x4xf32>, tensor<2x2x2x6xf32>)
    -> (tensor<2x6x2x2x4xf32>, tensor<2x6x2x4xf32>, tensor<2x6x2x4xf32>)
  return %dk : tensor<2x6x2x4xf32>
}

// -----

// Heads that tensor parallelism already splits are split further.
dist.mesh @mesh <["r"=1, "u"=2, "t"=2]>

// CHECK-LABEL: func @forward
// CHECK:         dist.constrain %{{.+}} <@mesh, [{?}, {}, {"t", "u", ?}, {?}, {?}]>
func.func @forward(%w: tensor<8x4x4xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"t"}, {}]>, nn.name = "w", nn.role = #nn.role<parameter>},
                   %x: tensor<2x6x8xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>})
    -> tensor<2x6x4x1x4xf32> {
  %q = nn.einsum "bsh,hnd->bsnd" %x, %w : tensor<2x6x8xf32>, tensor<8x4x4xf32> -> tensor<2x6x4x4xf32>
  %r = nn.reshape %q : tensor<2x6x4x4xf32> -> tensor<2x6x4x1x4xf32>
  %o, %lse = nn.attention %r, %q, %q scale = 0.5
    : (tensor<2x6x4x1x4xf32>, tensor<2x6x4x4xf32>, tensor<2x6x4x4xf32>) -> (tensor<2x6x4x1x4xf32>, tensor<2x4x1x6xf32>)
  return %o : tensor<2x6x4x1x4xf32>
}

// -----

// Cross attention with keys of another sequence, and a function without positions,
// are left unchanged.
dist.mesh @mesh <["r"=2, "u"=2, "t"=1]>

// CHECK-LABEL: func @cross
// CHECK-NOT:     dist.constrain
func.func @cross(%q: tensor<2x6x4x1x4xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>},
                 %k: tensor<2x5x4x4xf32> {nn.batch_dim = 0 : i64, nn.name = "k", nn.role = #nn.role<input>})
    -> tensor<2x6x4x1x4xf32> {
  %o, %lse = nn.attention %q, %k, %k scale = 0.5
    : (tensor<2x6x4x1x4xf32>, tensor<2x5x4x4xf32>, tensor<2x5x4x4xf32>) -> (tensor<2x6x4x1x4xf32>, tensor<2x4x1x6xf32>)
  return %o : tensor<2x6x4x1x4xf32>
}
func.func @init_state() -> tensor<2xf32> {
  %0 = arith.constant dense<0.0> : tensor<2xf32>
  return %0 : tensor<2xf32>
}

// -----

// The gradient of a position table is a sum over positions, even if the table
// is longer than the sequence.
dist.mesh @mesh <["r"=2, "u"=2, "t"=1]>

// CHECK-LABEL: func @loss_grad
// CHECK:         %[[SUM:.+]] = nn.reduce sum
// CHECK-NOT:     nn.pad
// CHECK:         %[[I:.+]] = nn.iota dim = 0 : tensor<6xi64>
// CHECK:         %[[TABLE:.+]] = nn.scatter_add %[[I]], %[[SUM]] dim = 0
// CHECK:         %[[ALL:.+]] = arith.addf %{{.+}}, %[[TABLE]]
// CHECK:         return %[[ALL]]
func.func @loss_grad(%w: tensor<9x4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                     %x: tensor<2x6x4xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>},
                     %g: tensor<9x4xf32> {nn.name = "w", nn.role = #nn.role<gradient>})
    -> (tensor<9x4xf32> {nn.name = "w", nn.role = #nn.role<gradient>}) {
  %0 = nn.reduce sum %x dims = [0] : tensor<2x6x4xf32> -> tensor<6x4xf32>
  %1 = nn.pad %0 low = [0, 0] high = [3, 0] value = 0.0 : tensor<6x4xf32> -> tensor<9x4xf32>
  %2 = arith.addf %g, %1 : tensor<9x4xf32>
  return %2 : tensor<9x4xf32>
}

// -----

// Positions are followed through a constraint of another strategy.
dist.mesh @mesh <["r"=1, "u"=2, "t"=2]>

// CHECK-LABEL: func @pinned
// CHECK:         %[[P:.+]] = dist.constrain %{{.+}} <@mesh, [{}, {"u"}, {}]>
// CHECK:         %[[Q:.+]] = nn.einsum "bsh,hnd->bsnd" %[[P]]
// CHECK:         %[[R:.+]] = nn.reshape %[[Q]]
// CHECK-DAG:     %[[Q0:.+]] = dist.constrain %[[R]] <@mesh, [{?}, {"u"}, {?}, {?}, {?}]>
// CHECK-DAG:     %[[Q1:.+]] = dist.constrain %[[Q0]] <@mesh, [{?}, {}, {"u", ?}, {?}, {?}]>
// CHECK:         nn.attention %[[Q1]]
func.func @pinned(%w: tensor<8x4x4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                  %x: tensor<2x6x8xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>}) -> tensor<2x6x4x1x4xf32> {
  %p = dist.constrain %x <@mesh, [{}, {"u"}, {}]> : tensor<2x6x8xf32>
  %q = nn.einsum "bsh,hnd->bsnd" %p, %w : tensor<2x6x8xf32>, tensor<8x4x4xf32> -> tensor<2x6x4x4xf32>
  %r = nn.reshape %q : tensor<2x6x4x4xf32> -> tensor<2x6x4x1x4xf32>
  %o, %lse = nn.attention %r, %q, %q scale = 0.5
    : (tensor<2x6x4x1x4xf32>, tensor<2x6x4x4xf32>, tensor<2x6x4x4xf32>) -> (tensor<2x6x4x1x4xf32>, tensor<2x4x1x6xf32>)
  return %o : tensor<2x6x4x1x4xf32>
}
