// RUN: cleave-opt %s -split-input-file -verify-diagnostics

// A code such as C1 names the documented verifier rule that the case below violates.

func.func private @k(tensor<4xf32>) -> tensor<4xf32>

// L1
func.func @other_types(%x: tensor<6xf32>) {
  // expected-error @below {{'rt.launch' op operands and results do not have the types of @k}}
  %0 = rt.launch @k(%x) extent = 4 grain = 1 : (tensor<6xf32>) -> tensor<6xf32>
  return
}

// -----

// L1
func.func @no_kernel(%x: tensor<6xf32>) {
  // expected-error @below {{'rt.launch' op kernel @k is not a function}}
  %0 = rt.launch @k(%x) extent = 4 grain = 1 : (tensor<6xf32>) -> tensor<6xf32>
  return
}

// -----

func.func private @k(tensor<4xf32>) -> tensor<4xf32>

// L2
func.func @no_grain(%x: tensor<4xf32>) {
  // expected-error @below {{'rt.launch' op extent is 4 and grain 0, expected at least 0 and 1}}
  %0 = rt.launch @k(%x) extent = 4 grain = 0 : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func private @k(tensor<4xf32>) -> tensor<4xf32>

// L3
func.func @no_such_operand(%x: tensor<4xf32>) {
  // expected-error @below {{'rt.launch' op inplace pair (0, 1) names no result and operand}}
  %0 = rt.launch @k(%x) extent = 4 grain = 1 inplace = [0, 1] : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func private @k(tensor<4xindex>) -> tensor<4xindex>

// L3
func.func @inplace_of_indices(%x: tensor<4xindex>) {
  // expected-error @below {{'rt.launch' op inplace pair (0, 0) has types 'tensor<4xindex>' and 'tensor<4xindex>', expected integers or floats as elements}}
  %0 = rt.launch @k(%x) extent = 4 grain = 1 inplace = [0, 0] : (tensor<4xindex>) -> tensor<4xindex>
  return
}

// -----

// G1
func.func @mixed_types(%a: tensor<4x5xf32>, %b: tensor<5x6xf64>) {
  // expected-error @below {{'rt.gemm' op b has element type 'f64', expected 'f32'}}
  %0 = rt.gemm a(%a [0, 5, 1]) b(%b [0, 6, 1]) c [0, 6, 1] m = 4 n = 6 k = 5
    : (tensor<4x5xf32>, tensor<5x6xf64>) -> tensor<4x6xf32>
  return
}

// -----

// G2
func.func @empty_product(%a: tensor<4x5xf32>, %b: tensor<5x6xf32>) {
  // expected-error @below {{'rt.gemm' op sizes must be positive, found m = 4, n = 6, k = 0, batch = []}}
  %0 = rt.gemm a(%a [0, 5, 1]) b(%b [0, 6, 1]) c [0, 6, 1] m = 4 n = 6 k = 0
    : (tensor<4x5xf32>, tensor<5x6xf32>) -> tensor<4x6xf32>
  return
}

// -----

// G3
func.func @outside(%a: tensor<4x5xf32>, %b: tensor<5x6xf32>) {
  // expected-error @below {{'rt.gemm' op view of a covers elements 0 to 22 of 20}}
  %0 = rt.gemm a(%a [0, 6, 1]) b(%b [0, 6, 1]) c [0, 6, 1] m = 4 n = 6 k = 5
    : (tensor<4x5xf32>, tensor<5x6xf32>) -> tensor<4x6xf32>
  return
}

// -----

// G3
func.func @missing_stride(%a: tensor<4x5xf32>, %b: tensor<5x6xf32>) {
  // expected-error @below {{'rt.gemm' op view of c has 2 entries, expected an offset and 2 strides}}
  %0 = rt.gemm a(%a [0, 5, 1]) b(%b [0, 6, 1]) c [0, 6] m = 4 n = 6 k = 5
    : (tensor<4x5xf32>, tensor<5x6xf32>) -> tensor<4x6xf32>
  return
}

// -----

// G4
func.func @short_bias(%a: tensor<4x5xf32>, %b: tensor<5x6xf32>, %bias: tensor<5xf32>) {
  // expected-error @below {{'rt.gemm' op view of bias covers elements 0 to 5 of 5}}
  %0 = rt.gemm a(%a [0, 5, 1]) b(%b [0, 6, 1]) bias(%bias) c [0, 6, 1] m = 4 n = 6 k = 5
    : (tensor<4x5xf32>, tensor<5x6xf32>, tensor<5xf32>) -> tensor<4x6xf32>
  return
}

// -----

// G5
func.func @other_accumulator(%a: tensor<4x5xf32>, %b: tensor<5x6xf32>, %acc: tensor<24xf32>) {
  // expected-error @below {{'rt.gemm' op accumulator has type 'tensor<24xf32>', expected 'tensor<4x6xf32>'}}
  %0 = rt.gemm a(%a [0, 5, 1]) b(%b [0, 6, 1]) accumulate(%acc) c [0, 6, 1] m = 4 n = 6 k = 5
    : (tensor<4x5xf32>, tensor<5x6xf32>, tensor<24xf32>) -> tensor<4x6xf32>
  return
}

// -----

// G6
func.func @short_derivative(%a: tensor<4x5xf32>, %b: tensor<5x6xf32>, %at: tensor<4x5xf32>) {
  // expected-error @below {{'rt.gemm' op view of derivative_at covers elements 0 to 23 of 20}}
  %0 = rt.gemm a(%a [0, 5, 1]) b(%b [0, 6, 1]) derivative_at(%at) c [0, 6, 1] m = 4 n = 6 k = 5 {activation = 1 : i32}
    : (tensor<4x5xf32>, tensor<5x6xf32>, tensor<4x5xf32>) -> tensor<4x6xf32>
  return
}

// -----

// G6
func.func @wide_derivative(%a: tensor<4x5xbf16>, %b: tensor<5x6xbf16>, %at: tensor<4x6xf32>) {
  // expected-error @below {{'rt.gemm' op derivative_at has element type 'f32' and c 'f32', expected 'bf16'}}
  %0 = rt.gemm a(%a [0, 5, 1]) b(%b [0, 6, 1]) derivative_at(%at) c [0, 6, 1] m = 4 n = 6 k = 5 {activation = 1 : i32}
    : (tensor<4x5xbf16>, tensor<5x6xbf16>, tensor<4x6xf32>) -> tensor<4x6xf32>
  return
}

// -----

// G6
func.func @derivative_of_nothing(%a: tensor<4x5xf32>, %b: tensor<5x6xf32>, %at: tensor<4x6xf32>) {
  // expected-error @below {{'rt.gemm' op takes a derivative, which goes with gelu_tanh, and without bias, accumulator, pre-activation and sums}}
  %0 = rt.gemm a(%a [0, 5, 1]) b(%b [0, 6, 1]) derivative_at(%at) c [0, 6, 1] m = 4 n = 6 k = 5
    : (tensor<4x5xf32>, tensor<5x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  return
}

// -----

// G7
func.func @other_sums(%a: tensor<4x5xbf16>, %b: tensor<5x6xbf16>) {
  // expected-error @below {{'rt.gemm' op has sums of type 'tensor<4xf32>', expected 6 of 'f32'}}
  %0:2 = rt.gemm a(%a [0, 5, 1]) b(%b [0, 6, 1]) c [0, 6, 1] m = 4 n = 6 k = 5 {sums_of = 2 : i32}
    : (tensor<4x5xbf16>, tensor<5x6xbf16>) -> (tensor<4x6xf32>, tensor<4xf32>)
  return
}

// -----

// G7
func.func @missing_sums(%a: tensor<4x5xf32>, %b: tensor<5x6xf32>) {
  // expected-error @below {{'rt.gemm' op has 1 results, expected 2 and perhaps scratch memory of i8}}
  %0 = rt.gemm a(%a [0, 5, 1]) b(%b [0, 6, 1]) c [0, 6, 1] m = 4 n = 6 k = 5 {sums_of = 1 : i32}
    : (tensor<4x5xf32>, tensor<5x6xf32>) -> tensor<4x6xf32>
  return
}

// -----

// G7
func.func @sums_and_activation(%a: tensor<4x5xf32>, %b: tensor<5x6xf32>) {
  // expected-error @below {{'rt.gemm' op has sums of an operand, which go without batch, bias, activation and pre-activation}}
  %0:2 = rt.gemm a(%a [0, 5, 1]) b(%b [0, 6, 1]) c [0, 6, 1] m = 4 n = 6 k = 5 {activation = 3 : i32, sums_of = 1 : i32}
    : (tensor<4x5xf32>, tensor<5x6xf32>) -> (tensor<4x6xf32>, tensor<4xf32>)
  return
}

// -----

// A1
func.func @sizes(%q: tensor<2x5x3x4xf32>, %lse: tensor<2x3x5xf32>) {
  // expected-error @below {{'rt.attention' op sizes are [2, 5], expected 7 positive numbers}}
  %o, %l = rt.attention q(%q) k(%q) v(%q) sizes = [2, 5] scale = 0.5
    {q_view = array<i64: 0>, k_view = array<i64: 0>, v_view = array<i64: 0>, o_view = array<i64: 0>, lse_view = array<i64: 0>}
    : (tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32>) -> (tensor<2x5x3x4xf32>, tensor<2x3x5xf32>)
  return
}

// -----

// H1
func.func @grouped_types(%x: tensor<5x6xf32>, %w: tensor<4x6x8xf64>, %ids: tensor<5xi64>) {
  // expected-error @below {{'rt.grouped_gemm' op other has element type 'f64', expected 'f32'}}
  %y = rt.grouped_gemm %x [0, 6, 1] %w [0, 48, 8, 1] ids %ids [0, 1] into [0, 8, 1] rows = [5] e = 4 k = 6 n = 8
    : (tensor<5x6xf32>, tensor<4x6x8xf64>, tensor<5xi64>) -> tensor<5x8xf32>
  return
}

// -----

// H2
func.func @grouped_empty(%x: tensor<5x6xf32>, %w: tensor<4x6x8xf32>, %ids: tensor<5xi64>) {
  // expected-error @below {{'rt.grouped_gemm' op sizes must be positive, found e = 0, k = 6, n = 8, rows = [5]}}
  %y = rt.grouped_gemm %x [0, 6, 1] %w [0, 48, 8, 1] ids %ids [0, 1] into [0, 8, 1] rows = [5] e = 0 k = 6 n = 8
    : (tensor<5x6xf32>, tensor<4x6x8xf32>, tensor<5xi64>) -> tensor<5x8xf32>
  return
}

// -----

// H3
func.func @grouped_outside(%x: tensor<5x6xf32>, %w: tensor<4x6x8xf32>, %ids: tensor<5xi64>) {
  // expected-error @below {{'rt.grouped_gemm' op view of ids covers elements 1 to 5 of 5}}
  %y = rt.grouped_gemm %x [0, 6, 1] %w [0, 48, 8, 1] ids %ids [1, 1] into [0, 8, 1] rows = [5] e = 4 k = 6 n = 8
    : (tensor<5x6xf32>, tensor<4x6x8xf32>, tensor<5xi64>) -> tensor<5x8xf32>
  return
}

// -----

// H4
func.func @grouped_results(%x: tensor<5x6xf32>, %w: tensor<4x6x8xf32>, %ids: tensor<5xi64>) {
  // expected-error @below {{'rt.grouped_gemm' op has 2 results, expected 1 and perhaps scratch memory of i8}}
  %y:2 = rt.grouped_gemm %x [0, 6, 1] %w [0, 48, 8, 1] ids %ids [0, 1] into [0, 8, 1] rows = [5] e = 4 k = 6 n = 8
    : (tensor<5x6xf32>, tensor<4x6x8xf32>, tensor<5xi64>) -> (tensor<5x8xf32>, tensor<5x8xf32>)
  return
}

// -----

// PI1
func.func @scratch_of_an_order(%ids: tensor<2x5x3xi64>, %s: tensor<5xi64>) {
  // expected-error @below {{'rt.position_in_expert' op has scratch for 9 numbers, expected 13}}
  %place, %scratch = rt.position_in_expert %ids, %s experts = 4 : (tensor<2x5x3xi64>, tensor<5xi64>) -> (tensor<2x5x3xi64>, tensor<9xi64>)
  return
}

// -----

// C6
func.func @rows_without_counts(%x: tensor<2x5x6xf32>) {
  // expected-error @below {{'rt.collective' op has 0 counts, expected 2}}
  %0 = rt.collective all_to_all_v(%x) group = [0, 1, 2] layout = [5, 6, 5, 6] purpose = "expert"
    : (tensor<2x5x6xf32>) -> tensor<2x5x6xf32>
  return
}

// -----

// C6
func.func @rows_with_few_counts(%x: tensor<2x5x6xf32>, %n: tensor<2xi64>, %m: tensor<3xi64>) {
  // expected-error @below {{'rt.collective' op counts has type 'tensor<3xi64>', expected one number for each of 2 members}}
  %0 = rt.collective all_to_all_v(%x) counts(%n, %m : tensor<2xi64>, tensor<3xi64>) group = [0, 1, 2] layout = [5, 6, 5, 6] purpose = "expert"
    : (tensor<2x5x6xf32>) -> tensor<2x5x6xf32>
  return
}

// -----

// A2
func.func @attention_outside(%q: tensor<2x5x3x4xf32>) {
  // expected-error @below {{'rt.attention' op view of k covers elements 12 to 131 of 120}}
  %o, %l = rt.attention q(%q) k(%q) v(%q) sizes = [2, 5, 5, 3, 1, 4, 4] scale = 0.5
    {q_view = array<i64: 0, 60, 12, 4, 4, 1>, k_view = array<i64: 12, 60, 12, 4, 0, 1>, v_view = array<i64: 0, 60, 12, 4, 0, 1>,
     o_view = array<i64: 0, 60, 12, 4, 4, 1>, lse_view = array<i64: 0, 15, 1, 5, 5, 0>}
    : (tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32>) -> (tensor<2x5x3x4xf32>, tensor<2x3x5xf32>)
  return
}

// -----

// A2
func.func @key_mask_outside(%q: tensor<2x5x3x4xf32>, %mask: tensor<2x5xi1>) {
  // expected-error @below {{'rt.attention' op view of key mask covers elements 0 to 14 of 10}}
  %o, %l = rt.attention q(%q) k(%q) v(%q) key_mask(%mask) sizes = [2, 5, 5, 3, 1, 4, 4] scale = 0.5
    {key_mask_view = array<i64: 0, 10, 1>, q_view = array<i64: 0, 60, 12, 4, 4, 1>, k_view = array<i64: 0, 60, 12, 4, 0, 1>, v_view = array<i64: 0, 60, 12, 4, 0, 1>,
     o_view = array<i64: 0, 60, 12, 4, 4, 1>, lse_view = array<i64: 0, 15, 1, 5, 5, 0>}
    : (tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32>, tensor<2x5xi1>) -> (tensor<2x5x3x4xf32>, tensor<2x3x5xf32>)
  return
}

// -----

// A3
func.func @window_negative(%q: tensor<2x5x3x4xf32>) {
  // expected-error @below {{'rt.attention' op has window = -1 and softcap = 0}}
  %o, %l = rt.attention q(%q) k(%q) v(%q) sizes = [2, 5, 5, 3, 1, 4, 4] scale = 0.5
    {window = -1 : i64, q_view = array<i64: 0, 60, 12, 4, 4, 1>, k_view = array<i64: 0, 60, 12, 4, 0, 1>, v_view = array<i64: 0, 60, 12, 4, 0, 1>,
     o_view = array<i64: 0, 60, 12, 4, 4, 1>, lse_view = array<i64: 0, 15, 1, 5, 5, 0>}
    : (tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32>) -> (tensor<2x5x3x4xf32>, tensor<2x3x5xf32>)
  return
}

// -----

// A3
func.func @dropout_of_nothing(%q: tensor<2x5x3x4xf32>) {
  // expected-error @below {{'rt.attention' op has dropout = 5.000000e-01, expected keys, query and key indices and a number between 0 and 1, or none of them and 0}}
  %o, %l = rt.attention q(%q) k(%q) v(%q) sizes = [2, 5, 5, 3, 1, 4, 4] scale = 0.5
    {dropout = 0.5 : f64, q_view = array<i64: 0, 60, 12, 4, 4, 1>, k_view = array<i64: 0, 60, 12, 4, 0, 1>, v_view = array<i64: 0, 60, 12, 4, 0, 1>,
     o_view = array<i64: 0, 60, 12, 4, 4, 1>, lse_view = array<i64: 0, 15, 1, 5, 5, 0>}
    : (tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32>) -> (tensor<2x5x3x4xf32>, tensor<2x3x5xf32>)
  return
}

// -----

// A2
func.func @dropout_keys_outside(%q: tensor<2x5x3x4xf32>, %keys: tensor<2x3xi64>, %index: tensor<5xi64>) {
  // expected-error @below {{'rt.attention' op view of dropout keys covers elements 0 to 8 of 6}}
  %o, %l = rt.attention q(%q) k(%q) v(%q) dropout(%keys, %index, %index) sizes = [2, 5, 5, 3, 1, 4, 4] scale = 0.5
    {dropout = 0.5 : f64, q_view = array<i64: 0, 60, 12, 4, 4, 1>, k_view = array<i64: 0, 60, 12, 4, 0, 1>, v_view = array<i64: 0, 60, 12, 4, 0, 1>,
     o_view = array<i64: 0, 60, 12, 4, 4, 1>, lse_view = array<i64: 0, 15, 1, 5, 5, 0>,
     dropout_keys_view = array<i64: 0, 6, 0, 1, 1, 0>, q_index_view = array<i64: 0, 0, 1>, k_index_view = array<i64: 0, 0, 1>}
    : (tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32>, tensor<2x3xi64>, tensor<5xi64>, tensor<5xi64>)
    -> (tensor<2x5x3x4xf32>, tensor<2x3x5xf32>)
  return
}

// -----

// A4
func.func @grads_into(%q: tensor<2x5x3x4xf32>, %lse: tensor<2x3x5xf32>) {
  // expected-error @below {{'rt.attention_grad' op results are into [0, 1, 2], expected three indices of its 1 results}}
  %d = rt.attention_grad do(%q) q(%q) k(%q) v(%q) o(%q) lse(%lse) sizes = [2, 5, 5, 3, 1, 4, 4] scale = 0.5 into [0, 1, 2]
    {do_view = array<i64: 0>, q_view = array<i64: 0>, k_view = array<i64: 0>, v_view = array<i64: 0>, o_view = array<i64: 0>,
     lse_view = array<i64: 0>, dq_view = array<i64: 0>, dk_view = array<i64: 0>, dv_view = array<i64: 0>}
    : (tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32>, tensor<2x3x5xf32>)
    -> tensor<2x5x3x4xf32>
  return
}

// -----

// C1
func.func @missing_result(%x: tensor<4xf32>) {
  // expected-error @below {{'rt.collective' op has 2 operands and 1 results}}
  %0 = rt.collective all_reduce(%x, %x) group = [0, 1, 2] layout = [1, 4, 1, 0, 1, 4, 1, 0] purpose = "gradient"
    : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// C2
func.func @group(%x: tensor<4xf32>) {
  // expected-error @below {{'rt.collective' op group is [0, 2], expected triples (axis, pre, size)}}
  %0 = rt.collective all_reduce(%x) group = [0, 2] layout = [1, 4, 1, 0] purpose = "gradient" : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// C3
func.func @layout(%x: tensor<4xf32>) {
  // expected-error @below {{'rt.collective' op layout of operand 0 speaks of 4 and 8 elements, but its types are 'tensor<4xf32>' and 'tensor<4xf32>'}}
  %0 = rt.collective all_gather(%x) group = [0, 1, 2] layout = [1, 4, 1, 0] purpose = "gradient" : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// C4
func.func @sources(%x: tensor<4xf32>) {
  // expected-error @below {{'rt.collective' op has 1 sources, expected 2}}
  %0 = rt.collective permute(%x) group = [0, 1, 2] layout = [1, 4, 1, 0] purpose = "activation" {sources = array<i64: 1>}
    : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// C5
func.func @exchanges(%x: tensor<4xf32>) {
  // expected-error @below {{'rt.collective' op describes 0 exchanges, expected 1}}
  %0 = rt.collective exchange(%x) group = [0, 1, 2] layout = [1, 4, 1, 4] purpose = "activation"
    : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// C5
func.func @malformed(%x: tensor<4xf32>) {
  // expected-error @below {{'rt.collective' op describes malformed exchanges, expected 1}}
  %0 = rt.collective exchange(%x) group = [0, 1, 2] layout = [1, 4, 1, 4] purpose = "activation" {exchanges = array<i64: 1, 4, 1, 0, 1>}
    : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// W1
func.func @wait(%x: tensor<4xf32>) {
  %0:2 = rt.collective all_reduce(%x) group = [0, 1, 2] layout = [1, 4, 1, 0] purpose = "gradient"
    : (tensor<4xf32>) -> (tensor<4xf32>, !rt.token)
  // expected-error @below {{'rt.wait' op values and sources are not the results and operands of the collective that it ends}}
  %1 = rt.wait %0#1 values(%x) sources(%x) : (!rt.token, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// Y1
func.func @copy_types(%x: tensor<4xf32>) {
  // expected-error @below {{'rt.copy' op copies 'tensor<4xf32>' to 'tensor<4xf64>'}}
  %0 = rt.copy %x [0, 1] to [0, 1] shape = [4] : (tensor<4xf32>) -> tensor<4xf64>
  return
}

// -----

// Y2
func.func @copy_outside(%x: tensor<4xf32>) {
  // expected-error @below {{'rt.copy' op view of source covers elements 1 to 4 of 4}}
  %0 = rt.copy %x [1, 1] to [0, 1] shape = [4] : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// F1
func.func @fill() {
  // expected-error @below {{'rt.fill' op value has type 'f64', expected 'f32'}}
  %0 = rt.fill 0.0 : f64 : tensor<4xf32>
  return
}

// -----

// V3
func.func @alias_outside(%x: tensor<4x6xf32>) {
  // expected-error @below {{'rt.alias' op ends at element 26 of 24}}
  %0 = rt.alias %x offset = 20 : (tensor<4x6xf32>) -> tensor<6xf32>
  return
}

// -----

func.func @alias_last_rank_outside(%x: tensor<4x6xf32>) {
  // expected-error @below {{'rt.alias' op ends at element 30 of 24}}
  %0 = rt.alias %x offset = 0 axis_terms = [0, 1, 3, 12] : (tensor<4x6xf32>) -> tensor<6xf32>
  return
}

// -----

// V1
func.func @alias_type(%x: tensor<4x6xf32>) {
  // expected-error @below {{'rt.alias' op shows 'tensor<4x6xf32>' as 'tensor<6xi32>'}}
  %0 = rt.alias %x offset = 0 : (tensor<4x6xf32>) -> tensor<6xi32>
  return
}

// -----

// V2
func.func @alias_before(%x: tensor<4x6xf32>) {
  // expected-error @below {{'rt.alias' op offset -1 and terms [] must not be negative}}
  %0 = rt.alias %x offset = -1 : (tensor<4x6xf32>) -> tensor<6xf32>
  return
}

// -----

// V4
func.func @alias_terms(%x: tensor<4x6xf32>) {
  // expected-error @below {{'rt.alias' op has 3 numbers in axis_terms, expected four for each term (axis, pre, size, elements)}}
  %0 = rt.alias %x offset = 0 axis_terms = [0, 1, 2] : (tensor<4x6xf32>) -> tensor<6xf32>
  return
}
