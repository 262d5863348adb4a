// RUN: cleave-opt %s --nn-select-library | FileCheck %s

// CHECK-LABEL: func @transposed_weight
// CHECK-SAME:    (%[[X:.+]]: tensor<4x5xf32>, %[[W:.+]]: tensor<6x5xf32>, %[[B:.+]]: tensor<6xf32>)
// CHECK-NEXT:    %[[C:.+]] = rt.gemm a(%[[X]] [0, 5, 1]) b(%[[W]] [0, 1, 5]) bias(%[[B]]) c [0, 6, 1] m = 4 n = 6 k = 5
// CHECK-NEXT:    return %[[C]]
func.func @transposed_weight(%x: tensor<4x5xf32>, %w: tensor<6x5xf32>, %b: tensor<6xf32>) -> tensor<4x6xf32> {
  %0 = nn.einsum "mk,nk->mn" %x, %w : tensor<4x5xf32>, tensor<6x5xf32> -> tensor<4x6xf32>
  %1 = nn.broadcast %b dims = [1] : tensor<6xf32> -> tensor<4x6xf32>
  %2 = arith.addf %0, %1 : tensor<4x6xf32>
  return %2 : tensor<4x6xf32>
}

// Batch and sequence merge into m; the bias of [3, n, d] merges into n.
// CHECK-LABEL: func @fused_projection
// CHECK-NEXT:    rt.gemm a(%{{.*}} [0, 6, 1]) b(%{{.*}} [0, 24, 1]) bias(%{{.*}}) c [0, 24, 1] m = 10 n = 24 k = 6
// CHECK-NEXT:    return
func.func @fused_projection(%x: tensor<2x5x6xf32>, %w: tensor<6x3x2x4xf32>, %b: tensor<3x2x4xf32>) -> tensor<2x5x3x2x4xf32> {
  %0 = nn.einsum "bsh,htnd->bstnd" %x, %w : tensor<2x5x6xf32>, tensor<6x3x2x4xf32> -> tensor<2x5x3x2x4xf32>
  %1 = nn.broadcast %b dims = [2, 3, 4] : tensor<3x2x4xf32> -> tensor<2x5x3x2x4xf32>
  %2 = arith.addf %0, %1 : tensor<2x5x3x2x4xf32>
  return %2 : tensor<2x5x3x2x4xf32>
}

// The result's innermost label comes from the left operand: operands swap.
// CHECK-LABEL: func @swapped
// CHECK-SAME:    (%[[X:.+]]: tensor<5x4xf32>, %[[Y:.+]]: tensor<5x6xf32>)
// CHECK-NEXT:    rt.gemm a(%[[Y]] [0, 1, 6]) b(%[[X]] [0, 4, 1]) c [0, 4, 1] m = 6 n = 4 k = 5
func.func @swapped(%x: tensor<5x4xf32>, %y: tensor<5x6xf32>) -> tensor<6x4xf32> {
  %0 = nn.einsum "km,kn->nm" %x, %y : tensor<5x4xf32>, tensor<5x6xf32> -> tensor<6x4xf32>
  return %0 : tensor<6x4xf32>
}

// CHECK-LABEL: func @batches
// CHECK-NEXT:    rt.gemm a(%{{.*}} [0, 60, 4, 12, 1]) b(%{{.*}} [0, 60, 4, 1, 12]) c [0, 75, 25, 5, 1] batch = [2, 3] m = 5 n = 5 k = 4
func.func @batches(%q: tensor<2x5x3x4xf32>, %k: tensor<2x5x3x4xf32>) -> tensor<2x3x5x5xf32> {
  %0 = nn.einsum "bsnd,btnd->bnst" %q, %k : tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32> -> tensor<2x3x5x5xf32>
  return %0 : tensor<2x3x5x5xf32>
}

// A slice and a transpose become strides.
// CHECK-LABEL: func @views
// CHECK-SAME:    (%[[X:.+]]: tensor<4x3x5xf32>, %[[W:.+]]: tensor<6x5xf32>)
// CHECK-NEXT:    rt.gemm a(%[[X]] [5, 15, 1]) b(%[[W]] [0, 1, 5]) c [0, 6, 1] m = 4 n = 6 k = 5
func.func @views(%x: tensor<4x3x5xf32>, %w: tensor<6x5xf32>) -> tensor<4x6xf32> {
  %0 = nn.slice %x [0, 1, 0] [4, 1, 5] [1, 1, 1] : tensor<4x3x5xf32> -> tensor<4x1x5xf32>
  %1 = nn.reshape %0 : tensor<4x1x5xf32> -> tensor<4x5xf32>
  %2 = nn.transpose %w [1, 0] : tensor<6x5xf32> -> tensor<5x6xf32>
  %3 = nn.einsum "mk,kn->mn" %1, %2 : tensor<4x5xf32>, tensor<5x6xf32> -> tensor<4x6xf32>
  return %3 : tensor<4x6xf32>
}

// The contracted labels have no common order: the smaller operand is copied.
// CHECK-LABEL: func @copy
// CHECK-SAME:    (%[[X:.+]]: tensor<7x2x3xf32>, %[[W:.+]]: tensor<3x2x5xf32>)
// CHECK-NEXT:    %[[T:.+]] = nn.transpose %[[W]] [1, 0, 2]
// CHECK-NEXT:    rt.gemm a(%[[X]] [0, 6, 1]) b(%[[T]] [0, 5, 1]) c [0, 5, 1] m = 7 n = 5 k = 6
func.func @copy(%x: tensor<7x2x3xf32>, %w: tensor<3x2x5xf32>) -> tensor<7x5xf32> {
  %0 = nn.einsum "mxy,yxn->mn" %x, %w : tensor<7x2x3xf32>, tensor<3x2x5xf32> -> tensor<7x5xf32>
  return %0 : tensor<7x5xf32>
}

// CHECK-LABEL: func @negative_outer_product
// CHECK-NOT:     rt.gemm
// CHECK:         arith.mulf
func.func @negative_outer_product(%x: tensor<4xf32>, %y: tensor<6xf32>) -> tensor<4x6xf32> {
  %0 = nn.einsum "m,n->mn" %x, %y : tensor<4xf32>, tensor<6xf32> -> tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}

// CHECK-LABEL: func @negative_row_products
// CHECK-NOT:     rt.gemm
// CHECK:         %[[P:.+]] = arith.mulf %{{.*}} : tensor<4x6xf32>
// CHECK-NEXT:    nn.reduce sum %[[P]] dims = [1]
func.func @negative_row_products(%x: tensor<4x6xf32>, %y: tensor<4x6xf32>) -> tensor<4xf32> {
  %0 = nn.einsum "mk,mk->m" %x, %y : tensor<4x6xf32>, tensor<4x6xf32> -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// The backward pass reads the operand of the activation.
// CHECK-LABEL: func @kept_pre_activation
// CHECK-NEXT:    %[[C:.+]]:2 = rt.gemm {{.*}} bias(%{{.*}}) {{.*}} {activation = 1 : i32, keep_pre_activation}
// CHECK-NEXT:    %[[S:.+]] = nn.save %[[C]]#1
// CHECK-NEXT:    return %[[C]]#0, %[[S]]
func.func @kept_pre_activation(%x: tensor<4x5xf32>, %w: tensor<5x6xf32>, %b: tensor<6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>) {
  %0 = nn.einsum "mk,kn->mn" %x, %w : tensor<4x5xf32>, tensor<5x6xf32> -> tensor<4x6xf32>
  %1 = nn.broadcast %b dims = [1] : tensor<6xf32> -> tensor<4x6xf32>
  %2 = arith.addf %0, %1 : tensor<4x6xf32>
  %3 = nn.gelu tanh %2 : tensor<4x6xf32>
  %4 = nn.save %2 : tensor<4x6xf32>
  return %3, %4 : tensor<4x6xf32>, tensor<4x6xf32>
}

// CHECK-LABEL: func @relu_and_silu
// CHECK-NEXT:    rt.gemm {{.*}} {activation = 3 : i32}
// CHECK-NEXT:    rt.gemm {{.*}} {activation = 4 : i32}
// CHECK-NEXT:    return
func.func @relu_and_silu(%x: tensor<4x5xf32>, %w: tensor<5x6xf32>, %v: tensor<6x3xf32>) -> tensor<4x3xf32> {
  %zero = arith.constant dense<0.0> : tensor<4x6xf32>
  %0 = nn.einsum "mk,kn->mn" %x, %w : tensor<4x5xf32>, tensor<5x6xf32> -> tensor<4x6xf32>
  %1 = arith.maxnumf %0, %zero : tensor<4x6xf32>
  %2 = nn.einsum "mk,kn->mn" %1, %v : tensor<4x6xf32>, tensor<6x3xf32> -> tensor<4x3xf32>
  %3 = nn.sigmoid %2 : tensor<4x3xf32>
  %4 = arith.mulf %2, %3 : tensor<4x3xf32>
  return %4 : tensor<4x3xf32>
}

// Two products and an accumulator share one buffer.
// CHECK-LABEL: func @sums
// CHECK-NEXT:    %[[P:.+]] = rt.gemm a(%{{.*}}) b(%{{.*}}) c
// CHECK-NEXT:    rt.gemm a(%{{.*}}) b(%{{.*}}) accumulate(%[[P]])
// CHECK-NEXT:    rt.gemm a(%{{.*}}) b(%{{.*}}) accumulate(%arg3)
// CHECK-NEXT:    return
func.func @sums(%x: tensor<4x5xf32>, %y: tensor<4x5xf32>, %w: tensor<5x6xf32>,
                %acc: tensor<4x6xf32> {nn.name = "w", nn.role = #nn.role<gradient>})
    -> (tensor<4x6xf32>, tensor<4x6xf32> {nn.name = "w", nn.role = #nn.role<gradient>}) {
  %0 = nn.einsum "mk,kn->mn" %x, %w : tensor<4x5xf32>, tensor<5x6xf32> -> tensor<4x6xf32>
  %1 = nn.einsum "mk,kn->mn" %y, %w : tensor<4x5xf32>, tensor<5x6xf32> -> tensor<4x6xf32>
  %2 = arith.addf %0, %1 : tensor<4x6xf32>
  %3 = nn.einsum "mk,kn->mn" %x, %w : tensor<4x5xf32>, tensor<5x6xf32> -> tensor<4x6xf32>
  %4 = arith.addf %acc, %3 : tensor<4x6xf32>
  return %2, %4 : tensor<4x6xf32>, tensor<4x6xf32>
}

// CHECK-LABEL: func @negative_residual_sum
// CHECK:         rt.gemm
// CHECK:         arith.addf
func.func @negative_residual_sum(%x: tensor<4x5xf32>, %w: tensor<5x5xf32>) -> tensor<4x5xf32> {
  %0 = nn.einsum "mk,kn->mn" %x, %w : tensor<4x5xf32>, tensor<5x5xf32> -> tensor<4x5xf32>
  %1 = arith.addf %x, %0 : tensor<4x5xf32>
  return %1 : tensor<4x5xf32>
}

// Query, key and value are slices of one projection; their gradients are
// written into one buffer.
// CHECK-LABEL: func @fused_attention
// CHECK-SAME:    (%[[QKV:.+]]: tensor<2x5x3x2x4xf32>, %[[DO:.+]]: tensor<2x5x2x1x4xf32>)
// CHECK-NEXT:    %[[O:.+]], %[[LSE:.+]] = rt.attention q(%[[QKV]]) k(%[[QKV]]) v(%[[QKV]]) sizes = [2, 5, 5, 2, 1, 4, 4]
// CHECK-SAME:      k_view = array<i64: 8, 120, 24, 4, 0, 1>
// CHECK-SAME:      q_view = array<i64: 0, 120, 24, 4, 4, 1>
// CHECK-SAME:      v_view = array<i64: 16, 120, 24, 4, 0, 1>
// CHECK-NEXT:    %[[D:.+]] = rt.attention_grad {{.*}} into [0, 0, 0]
// CHECK-SAME:      dk_view = array<i64: 8, 120, 24, 4, 0, 1>
// CHECK-SAME:      dq_view = array<i64: 0, 120, 24, 4, 4, 1>
// CHECK-SAME:      dv_view = array<i64: 16, 120, 24, 4, 0, 1>
// CHECK-NEXT:    return %[[O]], %[[D]]
func.func @fused_attention(%qkv: tensor<2x5x3x2x4xf32>, %do: tensor<2x5x2x1x4xf32>) -> (tensor<2x5x2x1x4xf32>, tensor<2x5x3x2x4xf32>) {
  %0 = nn.slice %qkv [0, 0, 0, 0, 0] [2, 5, 1, 2, 4] [1, 1, 1, 1, 1] : tensor<2x5x3x2x4xf32> -> tensor<2x5x1x2x4xf32>
  %1 = nn.slice %qkv [0, 0, 1, 0, 0] [2, 5, 1, 2, 4] [1, 1, 1, 1, 1] : tensor<2x5x3x2x4xf32> -> tensor<2x5x1x2x4xf32>
  %2 = nn.slice %qkv [0, 0, 2, 0, 0] [2, 5, 1, 2, 4] [1, 1, 1, 1, 1] : tensor<2x5x3x2x4xf32> -> tensor<2x5x1x2x4xf32>
  %q = nn.reshape %0 : tensor<2x5x1x2x4xf32> -> tensor<2x5x2x1x4xf32>
  %k = nn.reshape %1 : tensor<2x5x1x2x4xf32> -> tensor<2x5x2x4xf32>
  %v = nn.reshape %2 : tensor<2x5x1x2x4xf32> -> tensor<2x5x2x4xf32>
  %o, %lse = nn.attention %q, %k, %v scale = 0.5 causal
    : (tensor<2x5x2x1x4xf32>, tensor<2x5x2x4xf32>, tensor<2x5x2x4xf32>) -> (tensor<2x5x2x1x4xf32>, tensor<2x2x1x5xf32>)
  %dq, %dk, %dv = nn.attention_grad %do, %q, %k, %v, %o, %lse scale = 0.5 causal
    : (tensor<2x5x2x1x4xf32>, tensor<2x5x2x1x4xf32>, tensor<2x5x2x4xf32>, tensor<2x5x2x4xf32>, tensor<2x5x2x1x4xf32>, tensor<2x2x1x5xf32>)
    -> (tensor<2x5x2x1x4xf32>, tensor<2x5x2x4xf32>, tensor<2x5x2x4xf32>)
  %3 = nn.reshape %dq : tensor<2x5x2x1x4xf32> -> tensor<2x5x1x2x4xf32>
  %4 = nn.reshape %dk : tensor<2x5x2x4xf32> -> tensor<2x5x1x2x4xf32>
  %5 = nn.reshape %dv : tensor<2x5x2x4xf32> -> tensor<2x5x1x2x4xf32>
  %6 = nn.pad %3 low = [0, 0, 0, 0, 0] high = [0, 0, 2, 0, 0] value = 0.0 : tensor<2x5x1x2x4xf32> -> tensor<2x5x3x2x4xf32>
  %7 = nn.pad %4 low = [0, 0, 1, 0, 0] high = [0, 0, 1, 0, 0] value = 0.0 : tensor<2x5x1x2x4xf32> -> tensor<2x5x3x2x4xf32>
  %8 = nn.pad %5 low = [0, 0, 2, 0, 0] high = [0, 0, 0, 0, 0] value = 0.0 : tensor<2x5x1x2x4xf32> -> tensor<2x5x3x2x4xf32>
  %9 = arith.addf %8, %7 : tensor<2x5x3x2x4xf32>
  %10 = arith.addf %9, %6 : tensor<2x5x3x2x4xf32>
  return %o, %10 : tensor<2x5x2x1x4xf32>, tensor<2x5x3x2x4xf32>
}

// The token's row is read in place with stride 0; matrices may be transposed.
// CHECK-LABEL: func @experts
// CHECK-SAME:    (%[[X:.+]]: tensor<5x6xf32>, %[[W:.+]]: tensor<4x8x6xf32>, %[[IDS:.+]]: tensor<5x2xi64>, %[[DY:.+]]: tensor<5x2x8xf32>)
// CHECK-NEXT:    %[[Y:.+]] = rt.grouped_gemm %[[X]] [0, 6, 0, 1] %[[W]] [0, 48, 1, 6] ids %[[IDS]] [0, 2, 1] into [0, 16, 8, 1] rows = [5, 2] e = 4 k = 6 n = 8
// CHECK-NEXT:    %[[DW:.+]] = rt.grouped_gemm outer %[[DY]] [0, 16, 8, 1] %[[X]] [0, 6, 0, 1] ids %[[IDS]] [0, 2, 1] into [0, 48, 6, 1] rows = [5, 2] e = 4 k = 8 n = 6
// CHECK-NEXT:    return %[[Y]], %[[DW]]
func.func @experts(%x: tensor<5x6xf32>, %w: tensor<4x8x6xf32>, %ids: tensor<5x2xi64>, %dy: tensor<5x2x8xf32>) -> (tensor<5x2x8xf32>, tensor<4x8x6xf32>) {
  %0 = nn.broadcast %x dims = [0, 2] : tensor<5x6xf32> -> tensor<5x2x6xf32>
  %1 = nn.grouped_dot %0, %w, %ids transposed : tensor<5x2x6xf32>, tensor<4x8x6xf32>, tensor<5x2xi64> -> tensor<5x2x8xf32>
  %2 = nn.grouped_outer %dy, %0, %ids : tensor<5x2x8xf32>, tensor<5x2x6xf32>, tensor<5x2xi64> -> tensor<4x8x6xf32>
  return %1, %2 : tensor<5x2x8xf32>, tensor<4x8x6xf32>
}

// CHECK-LABEL: func @masked_attention
// CHECK:         rt.attention {{.*}} positions(%{{.*}}, %{{.*}}) key_mask(%arg4) bias(%arg5)
// CHECK-SAME:      bias_view = array<i64: 0, 0, 5, 25, 0, 1>
// CHECK-SAME:      k_positions_view = array<i64: 0, 0, 1>
// CHECK-SAME:      key_mask_view = array<i64: 0, 5, 1>
// CHECK-SAME:      q_positions_view = array<i64: 0, 5, 1>
func.func @masked_attention(%q: tensor<2x5x2x3x4xf32>, %k: tensor<2x5x2x4xf32>, %p: tensor<2x5xi64>, %r: tensor<5xi64>,
                            %m: tensor<2x5xi1>, %bias: tensor<1x2x1x5x5xf32>) -> tensor<2x5x2x3x4xf32> {
  %o, %lse = nn.attention %q, %k, %k positions(%p, %r) key_mask(%m) bias(%bias) scale = 0.5 causal
    : (tensor<2x5x2x3x4xf32>, tensor<2x5x2x4xf32>, tensor<2x5x2x4xf32>, tensor<2x5xi64>, tensor<5xi64>, tensor<2x5xi1>,
       tensor<1x2x1x5x5xf32>)
    -> (tensor<2x5x2x3x4xf32>, tensor<2x2x3x5xf32>)
  return %o : tensor<2x5x2x3x4xf32>
}

// Consecutive positions are the default of the command. Segment ids widen to i64.
// CHECK-LABEL: func @packed_attention
// CHECK:         %[[WIDE:.+]] = arith.extsi %arg2
// CHECK:         rt.attention q(%arg0) k(%arg1) v(%arg1) segments(%[[WIDE]], %[[WIDE]]) sizes
// CHECK-SAME:      k_segments_view = array<i64: 0, 5, 1>
// CHECK-SAME:      q_segments_view = array<i64: 0, 5, 1>
// CHECK-SAME:      softcap = 3.{{.*}} window = 2
// CHECK:         rt.attention_grad {{.*}} segments(%[[DOC:.+]], %[[DOC]]) sizes
// CHECK-SAME:      softcap = 3.{{.*}} window = 2
func.func @packed_attention(%q: tensor<2x5x2x3x4xf32>, %k: tensor<2x5x2x4xf32>, %d: tensor<2x5xi32>)
    -> (tensor<2x5x2x3x4xf32>, tensor<2x5x2x4xf32>) {
  %i = nn.iota dim = 0 : tensor<5xi64>
  %o, %lse = nn.attention %q, %k, %k positions(%i, %i) segments(%d, %d) scale = 0.5 causal window = 2 softcap = 3.0
    : (tensor<2x5x2x3x4xf32>, tensor<2x5x2x4xf32>, tensor<2x5x2x4xf32>, tensor<5xi64>, tensor<5xi64>, tensor<2x5xi32>,
       tensor<2x5xi32>) -> (tensor<2x5x2x3x4xf32>, tensor<2x2x3x5xf32>)
  %dq, %dk, %dv = nn.attention_grad %o, %q, %k, %k, %o, %lse positions(%i, %i) segments(%d, %d) scale = 0.5 causal window = 2 softcap = 3.0
    : (tensor<2x5x2x3x4xf32>, tensor<2x5x2x3x4xf32>, tensor<2x5x2x4xf32>, tensor<2x5x2x4xf32>, tensor<2x5x2x3x4xf32>,
       tensor<2x2x3x5xf32>, tensor<5xi64>, tensor<5xi64>, tensor<2x5xi32>, tensor<2x5xi32>)
    -> (tensor<2x5x2x3x4xf32>, tensor<2x5x2x4xf32>, tensor<2x5x2x4xf32>)
  return %o, %dk : tensor<2x5x2x3x4xf32>, tensor<2x5x2x4xf32>
}

// The command's ids are i64.
// CHECK-LABEL: func @order
// CHECK-SAME:    (%[[IDS:.+]]: tensor<2x5x3xi32>, %[[S:.+]]: tensor<5xi64>, %[[LOADS:.+]]: tensor<2x4xi64>, %[[SAMPLES:.+]]: tensor<2xi64>)
// CHECK-NEXT:    %[[WIDE:.+]] = arith.extsi %[[IDS]]
// CHECK-NEXT:    %[[PLACE:.+]], %{{.+}} = rt.position_in_expert %[[WIDE]], %[[S]] behind(%[[LOADS]], %[[SAMPLES]]) experts = 4 : {{.+}} -> (tensor<2x5x3xi64>, tensor<13xi64>)
// CHECK-NEXT:    %[[NARROW:.+]] = arith.trunci %[[PLACE]]
// CHECK-NEXT:    return %[[NARROW]]
func.func @order(%ids: tensor<2x5x3xi32>, %s: tensor<5xi64>, %loads: tensor<2x4xi64>, %samples: tensor<2xi64>) -> tensor<2x5x3xi32> {
  %0 = nn.position_in_expert %ids, %s behind(%loads, %samples) experts = 4 : (tensor<2x5x3xi32>, tensor<5xi64>, tensor<2x4xi64>, tensor<2xi64>) -> tensor<2x5x3xi32>
  return %0 : tensor<2x5x3xi32>
}
