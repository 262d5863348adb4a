// RUN: cleave-opt %s | cleave-opt | FileCheck %s

func.func private @kernel_0(tensor<4x6xf32>) -> tensor<4x6xf32>

// CHECK-LABEL: func @gemm_and_launch
func.func @gemm_and_launch(%a: tensor<4x5xf32>, %b: tensor<5x6xf32>, %bias: tensor<6xf32>) -> tensor<4x6xf32> {
  // CHECK: rt.gemm a(%{{.*}} [0, 5, 1]) b(%{{.*}} [0, 6, 1]) c [0, 6, 1] m = 4 n = 6 k = 5 :
  %0 = rt.gemm a(%a [0, 5, 1]) b(%b [0, 6, 1]) c [0, 6, 1] m = 4 n = 6 k = 5
    : (tensor<4x5xf32>, tensor<5x6xf32>) -> tensor<4x6xf32>
  // CHECK: %{{.*}}:3 = rt.gemm {{.*}} bias(%{{.*}}) accumulate(%{{.*}}) {{.*}} {activation = 3 : i32, keep_pre_activation}
  %1:3 = rt.gemm a(%a [0, 5, 1]) b(%b [0, 6, 1]) bias(%bias) accumulate(%0) c [0, 6, 1] m = 4 n = 6 k = 5
    {activation = 3 : i32, keep_pre_activation}
    : (tensor<4x5xf32>, tensor<5x6xf32>, tensor<6xf32>, tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>, tensor<64xi8>)
  // CHECK: rt.launch @kernel_0(%{{.*}}) extent = 4 grain = 1 inplace = [0, 0]
  %2 = rt.launch @kernel_0(%1#0) extent = 4 grain = 1 inplace = [0, 0] : (tensor<4x6xf32>) -> tensor<4x6xf32>
  return %2 : tensor<4x6xf32>
}

// CHECK-LABEL: func @batched_gemm
func.func @batched_gemm(%a: tensor<2x3x4x5xf32>, %b: tensor<2x5x6xf32>) -> tensor<2x3x4x6xf32> {
  // CHECK: batch = [2, 3] m = 4
  %0 = rt.gemm a(%a [0, 60, 20, 5, 1]) b(%b [0, 30, 0, 6, 1]) c [0, 72, 24, 6, 1] batch = [2, 3] m = 4 n = 6 k = 5
    : (tensor<2x3x4x5xf32>, tensor<2x5x6xf32>) -> tensor<2x3x4x6xf32>
  return %0 : tensor<2x3x4x6xf32>
}

// CHECK-LABEL: func @gradients
func.func @gradients(%a: tensor<4x5xbf16>, %b: tensor<5x6xbf16>, %x: tensor<2x2x6xbf16>) -> (tensor<2x2x6xbf16>, tensor<4x6xf32>, tensor<2x3xf32>) {
  // CHECK: rt.gemm {{.*}} derivative_at(%{{.*}}) c [0, 6, 1] m = 4 n = 6 k = 5 {activation = 1 : i32}
  %0:2 = rt.gemm a(%a [0, 5, 1]) b(%b [0, 6, 1]) derivative_at(%x) c [0, 6, 1] m = 4 n = 6 k = 5 {activation = 1 : i32}
    : (tensor<4x5xbf16>, tensor<5x6xbf16>, tensor<2x2x6xbf16>) -> (tensor<2x2x6xbf16>, tensor<64xi8>)
  // CHECK: %{{.*}}:3 = rt.gemm {{.*}} {sums_of = 2 : i32}
  %1:3 = rt.gemm a(%a [0, 5, 1]) b(%b [0, 6, 1]) c [0, 6, 1] m = 4 n = 6 k = 5 {sums_of = 2 : i32}
    : (tensor<4x5xbf16>, tensor<5x6xbf16>) -> (tensor<4x6xf32>, tensor<2x3xf32>, tensor<64xi8>)
  return %0#0, %1#0, %1#1 : tensor<2x2x6xbf16>, tensor<4x6xf32>, tensor<2x3xf32>
}

// The token's row is read for each expert that it chose; each row's id chooses a matrix.
// CHECK-LABEL: func @grouped_gemm
func.func @grouped_gemm(%x: tensor<5x6xf32>, %w: tensor<4x6x8xf32>, %ids: tensor<5x2xi64>) -> (tensor<5x2x8xf32>, tensor<4x6x8xf32>) {
  // CHECK: rt.grouped_gemm %{{.*}} [0, 6, 0, 1] %{{.*}} [0, 48, 8, 1] ids %{{.*}} [0, 2, 1] into [0, 16, 8, 1]
  // CHECK-SAME: rows = [5, 2] e = 4 k = 6 n = 8
  %y = rt.grouped_gemm %x [0, 6, 0, 1] %w [0, 48, 8, 1] ids %ids [0, 2, 1] into [0, 16, 8, 1] rows = [5, 2] e = 4 k = 6 n = 8
    : (tensor<5x6xf32>, tensor<4x6x8xf32>, tensor<5x2xi64>) -> tensor<5x2x8xf32>
  // CHECK: %{{.*}}:2 = rt.grouped_gemm outer
  %dw:2 = rt.grouped_gemm outer %x [0, 6, 0, 1] %y [0, 16, 8, 1] ids %ids [0, 2, 1] into [0, 48, 8, 1] rows = [5, 2] e = 4 k = 6 n = 8
    : (tensor<5x6xf32>, tensor<5x2x8xf32>, tensor<5x2xi64>) -> (tensor<4x6x8xf32>, tensor<64xi8>)
  return %y, %dw#0 : tensor<5x2x8xf32>, tensor<4x6x8xf32>
}

// CHECK-LABEL: func @rows_of_ranks
func.func @rows_of_ranks(%ids: tensor<5xi64>, %x: tensor<2x5x6xf32>, %n: tensor<2xi64>) -> tensor<2x5x6xf32> {
  // CHECK: rt.plan_rows %{{.*}} tile = 3 : tensor<5xi64> -> tensor<1x2x5xi64>, tensor<5xi64>, tensor<1x2x5xi64>, tensor<2x1xi64>
  %sources, %places, %sent, %counts = rt.plan_rows %ids tile = 3
    : tensor<5xi64> -> tensor<1x2x5xi64>, tensor<5xi64>, tensor<1x2x5xi64>, tensor<2x1xi64>
  // CHECK: rt.sort_rows %{{.*}} groups = 3 : tensor<5xi64> -> tensor<5xi64>, tensor<5xi64>, tensor<5xi64>
  %order, %at, %sorted = rt.sort_rows %ids groups = 3 : tensor<5xi64> -> tensor<5xi64>, tensor<5xi64>, tensor<5xi64>
  // CHECK: rt.collective all_to_all_v(%{{.*}}) counts(%{{.*}}, %{{.*}} : tensor<2xi64>, tensor<2xi64>) group = [0, 1, 2] layout = [5, 6, 5, 6]
  %0 = rt.collective all_to_all_v(%x) counts(%n, %n : tensor<2xi64>, tensor<2xi64>) group = [0, 1, 2] layout = [5, 6, 5, 6] purpose = "expert"
    : (tensor<2x5x6xf32>) -> tensor<2x5x6xf32>
  return %0 : tensor<2x5x6xf32>
}

// CHECK-LABEL: func @position_in_expert
func.func @position_in_expert(%ids: tensor<2x5x3xi64>, %s: tensor<5xi64>, %loads: tensor<6x4xi64>, %samples: tensor<2xi64>) -> tensor<2x5x3xi64> {
  // CHECK: rt.position_in_expert %{{.*}}, %{{.*}} after(%{{.*}}, %{{.*}}) experts = 4
  %place, %scratch = rt.position_in_expert %ids, %s after(%loads, %samples) experts = 4
    : (tensor<2x5x3xi64>, tensor<5xi64>, tensor<6x4xi64>, tensor<2xi64>) -> (tensor<2x5x3xi64>, tensor<13xi64>)
  return %place : tensor<2x5x3xi64>
}

// CHECK-LABEL: func @attention
func.func @attention(%q: tensor<2x5x3x1x4xf32>, %k: tensor<2x5x3x4xf32>, %v: tensor<2x5x3x4xf32>, %mask: tensor<2x5xi1>,
                     %pos: tensor<5xi64>, %doc: tensor<2x5xi64>, %bias: tensor<5x5xf32>)
    -> (tensor<2x5x3x1x4xf32>, tensor<2x3x1x5xf32>) {
  // CHECK: rt.attention q(%{{.*}}) k(%{{.*}}) v(%{{.*}}) positions(%{{.*}}, %{{.*}}) segments(%{{.*}}, %{{.*}}) key_mask(%{{.*}}) bias(%{{.*}}) sizes = [2, 5, 5, 3, 1, 4, 4] scale = 5.0
  // CHECK-SAME: softcap = 3.0{{.*}} window = 2
  %o, %lse = rt.attention q(%q) k(%k) v(%v) positions(%pos, %pos) segments(%doc, %doc) key_mask(%mask) bias(%bias)
    sizes = [2, 5, 5, 3, 1, 4, 4] scale = 0.5
    {causal, window = 2 : i64, softcap = 3.0 : f64,
     q_view = array<i64: 0, 60, 12, 4, 4, 1>, k_view = array<i64: 0, 60, 12, 4, 0, 1>, v_view = array<i64: 0, 60, 12, 4, 0, 1>,
     o_view = array<i64: 0, 60, 12, 4, 4, 1>, lse_view = array<i64: 0, 15, 1, 5, 5, 0>,
     q_positions_view = array<i64: 0, 0, 1>, k_positions_view = array<i64: 0, 0, 1>, q_segments_view = array<i64: 0, 5, 1>,
     k_segments_view = array<i64: 0, 5, 1>, key_mask_view = array<i64: 0, 5, 1>, bias_view = array<i64: 0, 0, 5, 0, 0, 1>}
    : (tensor<2x5x3x1x4xf32>, tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32>, tensor<5xi64>, tensor<5xi64>, tensor<2x5xi64>,
       tensor<2x5xi64>, tensor<2x5xi1>, tensor<5x5xf32>)
    -> (tensor<2x5x3x1x4xf32>, tensor<2x3x1x5xf32>)
  return %o, %lse : tensor<2x5x3x1x4xf32>, tensor<2x3x1x5xf32>
}

// CHECK-LABEL: func @attention_dropped
func.func @attention_dropped(%q: tensor<2x5x3x4xf32>, %keys: tensor<2x3xi64>, %index: tensor<5xi64>) -> tensor<2x5x3x4xf32> {
  // CHECK: rt.attention q(%{{.*}}) k(%{{.*}}) v(%{{.*}}) dropout(%{{.*}}, %{{.*}}, %{{.*}}) sizes
  // CHECK-SAME: dropout = 1.000000e-01
  %o, %lse = rt.attention q(%q) k(%q) v(%q) dropout(%keys, %index, %index) sizes = [2, 5, 5, 3, 1, 4, 4] scale = 0.5
    {dropout = 0.1 : f64, q_view = array<i64: 0, 60, 12, 4, 4, 1>, k_view = array<i64: 0, 60, 12, 4, 0, 1>,
     v_view = array<i64: 0, 60, 12, 4, 0, 1>, o_view = array<i64: 0, 60, 12, 4, 4, 1>, lse_view = array<i64: 0, 15, 1, 5, 5, 0>,
     dropout_keys_view = array<i64: 0, 3, 0, 1, 1, 0>, q_index_view = array<i64: 0, 0, 1>, k_index_view = array<i64: 0, 0, 1>}
    : (tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32>, tensor<2x3xi64>, tensor<5xi64>, tensor<5xi64>)
    -> (tensor<2x5x3x4xf32>, tensor<2x3x5xf32>)
  return %o : tensor<2x5x3x4xf32>
}

// CHECK-LABEL: func @attention_grad_in_pieces
func.func @attention_grad_in_pieces(%do: tensor<2x5x3x4xf32>, %qkv: tensor<2x5x3x3x4xf32>, %o: tensor<2x5x3x4xf32>,
                                    %lse: tensor<2x3x5xf32>) -> tensor<2x5x3x3x4xf32> {
  // CHECK: rt.attention_grad {{.*}} into [0, 0, 0]
  %d = rt.attention_grad do(%do) q(%qkv) k(%qkv) v(%qkv) o(%o) lse(%lse) sizes = [2, 5, 5, 3, 1, 4, 4] scale = 0.5 into [0, 0, 0]
    {causal, do_view = array<i64: 0, 60, 12, 4, 4, 1>, q_view = array<i64: 0, 180, 36, 4, 4, 1>,
     k_view = array<i64: 12, 180, 36, 4, 0, 1>, v_view = array<i64: 24, 180, 36, 4, 0, 1>,
     o_view = array<i64: 0, 60, 12, 4, 4, 1>, lse_view = array<i64: 0, 15, 1, 5, 5, 0>,
     dq_view = array<i64: 0, 180, 36, 4, 4, 1>, dk_view = array<i64: 12, 180, 36, 4, 0, 1>, dv_view = array<i64: 24, 180, 36, 4, 0, 1>}
    : (tensor<2x5x3x4xf32>, tensor<2x5x3x3x4xf32>, tensor<2x5x3x3x4xf32>, tensor<2x5x3x3x4xf32>, tensor<2x5x3x4xf32>, tensor<2x3x5xf32>)
    -> tensor<2x5x3x3x4xf32>
  return %d : tensor<2x5x3x3x4xf32>
}

// CHECK-LABEL: func @communication
func.func @communication(%x: tensor<4x3xf32>) -> (tensor<4x6xf32>, tensor<4x3xf32>) {
  // CHECK: rt.collective all_gather(%{{.*}}) group = [1, 1, 2] layout = [4, 3, 1, 0] purpose = "activation"
  %0 = rt.collective all_gather(%x) group = [1, 1, 2] layout = [4, 3, 1, 0] purpose = "activation"
    : (tensor<4x3xf32>) -> tensor<4x6xf32>
  %1:2 = rt.collective all_reduce(%x) group = [0, 1, 2] layout = [1, 12, 1, 0] purpose = "gradient"
    : (tensor<4x3xf32>) -> (tensor<4x3xf32>, !rt.token)
  // CHECK: rt.wait %{{.*}} values(%{{.*}}) sources(%{{.*}})
  %2 = rt.wait %1#1 values(%1#0) sources(%x) : (!rt.token, tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x3xf32>
  return %0, %2 : tensor<4x6xf32>, tensor<4x3xf32>
}

// CHECK-LABEL: func @movement
func.func @movement(%x: tensor<4x6xf32>) -> (tensor<6x4xf32>, tensor<2x3xf32>, tensor<6x4xf32>) {
  // CHECK: rt.copy %{{.*}} [0, 1, 6] to [0, 4, 1] shape = [6, 4] :
  %0 = rt.copy %x [0, 1, 6] to [0, 4, 1] shape = [6, 4] : (tensor<4x6xf32>) -> tensor<6x4xf32>
  // CHECK: rt.alias %{{.*}} offset = 6 axis_terms = [1, 1, 6, 3] reach = 18
  %1 = rt.alias %x offset = 6 axis_terms = [1, 1, 6, 3] reach = 18 : (tensor<4x6xf32>) -> tensor<2x3xf32>
  // CHECK: rt.fill 0.000000e+00 : f32 : tensor<6x4xf32>
  %2 = rt.fill 0.0 : f32 : tensor<6x4xf32>
  // CHECK: rt.copy {{.*}} into(%{{.*}})
  %3 = rt.copy %1 [0, 3, 1] to [5, 4, 1] shape = [2, 3] into(%2) : (tensor<2x3xf32>, tensor<6x4xf32>) -> tensor<6x4xf32>
  return %0, %1, %3 : tensor<6x4xf32>, tensor<2x3xf32>, tensor<6x4xf32>
}

// CHECK-LABEL: func @convolutions
func.func @convolutions(%x: tensor<2x6x8xf32>, %w: tensor<4x3x3xf32>, %y: tensor<2x4x4xf32>)
    -> (tensor<2x4x4xf32>, tensor<2x6x8xf32>, tensor<4x3x3xf32>) {
  // CHECK: rt.conv forward %{{.*}}, %{{.*}} strides = [2] dilations = [1] low = [1] high = [0] groups = 2 :
  %0 = rt.conv forward %x, %w strides = [2] dilations = [1] low = [1] high = [0] groups = 2
    : (tensor<2x6x8xf32>, tensor<4x3x3xf32>) -> tensor<2x4x4xf32>
  // CHECK: rt.conv input_grad {{.*}} -> (tensor<2x6x8xf32>, tensor<64xi8>)
  %1:2 = rt.conv input_grad %y, %w strides = [2] dilations = [1] low = [1] high = [0] groups = 2
    : (tensor<2x4x4xf32>, tensor<4x3x3xf32>) -> (tensor<2x6x8xf32>, tensor<64xi8>)
  // CHECK: rt.conv filter_grad
  %2 = rt.conv filter_grad %y, %x strides = [2] dilations = [1] low = [1] high = [0] groups = 2
    : (tensor<2x4x4xf32>, tensor<2x6x8xf32>) -> tensor<4x3x3xf32>
  return %0, %1#0, %2 : tensor<2x4x4xf32>, tensor<2x6x8xf32>, tensor<4x3x3xf32>
}
