// RUN: cleave-opt %s --nn-mixed-precision --split-input-file | FileCheck %s

// Parameters are bf16 at the boundary; inputs are rounded where a product reads
// them. Values between products are computed in f32 and stored in bf16. The
// weight's gradient is the f32 sum, and the bias's gradient is summed in f32.
// CHECK-LABEL: func @loss_grad
// CHECK-SAME:    (%[[W:.+]]: tensor<3x7xbf16> {nn.name = "w", nn.role = #nn.role<parameter>}, %[[B:.+]]: tensor<7xbf16> {{.*}}, %[[X:.+]]: tensor<2x3xf32> {{.*}}, %[[DY:.+]]: tensor<2x7xf32>
// CHECK-SAME:    -> (tensor<2x7xf32> {{.*}}, tensor<3x7xf32> {{.*}}, tensor<7xf32>
// CHECK-NEXT:    %[[XB:.+]] = arith.truncf %[[X]]
// CHECK-NEXT:    %[[Y:.+]] = nn.einsum "bh,hv->bv" %[[XB]], %[[W]] : {{.*}} -> tensor<2x7xbf16>
// CHECK-NEXT:    %[[SPREAD:.+]] = nn.broadcast %[[B]] dims = [1] : tensor<7xbf16> -> tensor<2x7xbf16>
// CHECK-NEXT:    %[[YF:.+]] = arith.extf %[[Y]]
// CHECK-NEXT:    %[[SF:.+]] = arith.extf %[[SPREAD]]
// CHECK-NEXT:    %[[Z:.+]] = arith.addf %[[YF]], %[[SF]] : tensor<2x7xf32>
// CHECK-NEXT:    %[[ZB:.+]] = arith.truncf %[[Z]]
// CHECK-NEXT:    %[[SAVED:.+]] = nn.save %[[ZB]] : tensor<2x7xbf16>
// CHECK-NEXT:    %[[SAVEDF:.+]] = arith.extf %[[SAVED]]
// CHECK-NEXT:    %[[D:.+]] = arith.mulf %[[SAVEDF]], %[[DY]]
// CHECK-NEXT:    %[[DB:.+]] = arith.truncf %[[D]]
// CHECK-NEXT:    %[[DW:.+]] = nn.einsum "bh,bv->hv" %[[XB]], %[[DB]] : {{.*}} -> tensor<3x7xf32>
// CHECK-NEXT:    %[[DF:.+]] = arith.extf %[[DB]]
// CHECK-NEXT:    %[[SUM:.+]] = nn.reduce sum %[[DF]] dims = [0] : tensor<2x7xf32> -> tensor<7xf32>
// CHECK-NEXT:    %[[OUT:.+]] = arith.extf %[[ZB]]
// CHECK-NEXT:    return %[[OUT]], %[[DW]], %[[SUM]]
func.func @loss_grad(%w: tensor<3x7xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                     %b: tensor<7xf32> {nn.name = "b", nn.role = #nn.role<parameter>},
                     %x: tensor<2x3xf32> {nn.name = "x", nn.role = #nn.role<input>},
                     %dy: tensor<2x7xf32> {nn.name = "dy", nn.role = #nn.role<input>})
    -> (tensor<2x7xf32> {nn.name = "y", nn.role = #nn.role<output>},
        tensor<3x7xf32> {nn.name = "w", nn.role = #nn.role<gradient>},
        tensor<7xf32> {nn.name = "b", nn.role = #nn.role<gradient>}) {
  %0 = nn.einsum "bh,hv->bv" %x, %w : tensor<2x3xf32>, tensor<3x7xf32> -> tensor<2x7xf32>
  %1 = nn.broadcast %b dims = [1] : tensor<7xf32> -> tensor<2x7xf32>
  %2 = arith.addf %0, %1 : tensor<2x7xf32>
  %3 = nn.save %2 : tensor<2x7xf32>
  %4 = arith.mulf %3, %dy : tensor<2x7xf32>
  %5 = nn.einsum "bh,bv->hv" %x, %4 : tensor<2x3xf32>, tensor<2x7xf32> -> tensor<3x7xf32>
  %6 = nn.reduce sum %4 dims = [0] : tensor<2x7xf32> -> tensor<7xf32>
  return %2, %5, %6 : tensor<2x7xf32>, tensor<3x7xf32>, tensor<7xf32>
}

// The f32 master copy is optimizer state, sharded like the other state; products
// read its rounded value. Parameters that are not f32 matrices have no master copy.
// CHECK-LABEL: func @update
// CHECK-SAME:    (%[[M:.+]]: tensor<3x7xf32> {dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>, nn.name = "w.master", nn.role = #nn.role<state>},
// CHECK-SAME:    -> (tensor<3x7xbf16> {nn.name = "w", nn.role = #nn.role<parameter>}, tensor<3x7xf32> {nn.name = "w.velocity", nn.role = #nn.role<state>}, tensor<f32> {nn.name = "s", nn.role = #nn.role<parameter>}, tensor<3x7xf32> {dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>, nn.name = "w.master", nn.role = #nn.role<state>})
// CHECK-NEXT:    %[[NEW:.+]] = arith.subf %[[M]], %{{.+}} : tensor<3x7xf32>
// CHECK-NEXT:    %[[ROUNDED:.+]] = arith.truncf %[[NEW]] {nn.storage} : tensor<3x7xf32> to tensor<3x7xbf16>
// CHECK-NEXT:    return %[[ROUNDED]], %{{.+}}, %{{.+}}, %[[NEW]]
dist.mesh @mesh <["data"=3]>
func.func @update(%w: tensor<3x7xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                  %v: tensor<3x7xf32> {nn.name = "w.velocity", nn.role = #nn.role<state>, dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>},
                  %g: tensor<3x7xf32> {nn.name = "w", nn.role = #nn.role<gradient>},
                  %s: tensor<f32> {nn.name = "s", nn.role = #nn.role<parameter>})
    -> (tensor<3x7xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
        tensor<3x7xf32> {nn.name = "w.velocity", nn.role = #nn.role<state>},
        tensor<f32> {nn.name = "s", nn.role = #nn.role<parameter>}) {
  %0 = arith.subf %w, %g : tensor<3x7xf32>
  return %0, %v, %s : tensor<3x7xf32>, tensor<3x7xf32>, tensor<f32>
}

// -----

// Norm statistics stay f32, and so do the values that decide a choice, up to the
// product. Angles that depend on no parameter are never rounded.
// CHECK-LABEL: func @loss
// CHECK:         %[[N:.+]], %[[RSTD:.+]] = nn.rms_norm %{{.+}}, %{{.+}} epsilon = {{.*}} -> (tensor<2x5x8xf32>, tensor<2x5xf32>)
// CHECK:         %[[NB:.+]] = arith.truncf %[[N]]
// CHECK:         nn.einsum "bsh,he->bse" %[[NB]], %{{.+}} -> tensor<2x5x4xf32>
// CHECK-NEXT:    nn.softmax %{{.+}} : tensor<2x5x4xf32>
// CHECK-NEXT:    nn.top_k %{{.+}} k = 2 : tensor<2x5x4xf32> -> tensor<2x5x2xf32>, tensor<2x5x2xi64>
// CHECK-NEXT:    %[[COS:.+]] = math.cos %{{.+}} : tensor<5x4xf32>
// CHECK-NEXT:    %[[SIN:.+]] = math.sin %{{.+}} : tensor<5x4xf32>
// CHECK-NEXT:    %[[NF:.+]] = arith.extf %[[NB]]
// CHECK-NEXT:    nn.rotary %[[NF]], %[[COS]], %[[SIN]]
// CHECK:         return %{{.+}}, %[[RSTD]]
func.func @loss(%x: tensor<2x5x8xf32> {nn.name = "x", nn.role = #nn.role<input>},
                %scale: tensor<8xf32> {nn.name = "scale", nn.role = #nn.role<parameter>},
                %router: tensor<8x4xf32> {nn.name = "router", nn.role = #nn.role<parameter>},
                %angles: tensor<5x4xf32> {nn.name = "angles", nn.role = #nn.role<constant>})
    -> (tensor<2x5x8xf32> {nn.name = "y", nn.role = #nn.role<output>}, tensor<2x5xf32>, tensor<2x5x2xi64>) {
  %n, %rstd = nn.rms_norm %x, %scale epsilon = 1.0e-6
    : (tensor<2x5x8xf32>, tensor<8xf32>) -> (tensor<2x5x8xf32>, tensor<2x5xf32>)
  %0 = nn.einsum "bsh,he->bse" %n, %router : tensor<2x5x8xf32>, tensor<8x4xf32> -> tensor<2x5x4xf32>
  %1 = nn.softmax %0 : tensor<2x5x4xf32>
  %values, %chosen = nn.top_k %1 k = 2 : tensor<2x5x4xf32> -> tensor<2x5x2xf32>, tensor<2x5x2xi64>
  %cos = math.cos %angles : tensor<5x4xf32>
  %sin = math.sin %angles : tensor<5x4xf32>
  %2 = nn.rotary %n, %cos, %sin : tensor<2x5x8xf32>, tensor<5x4xf32>
  return %2, %rstd, %chosen : tensor<2x5x8xf32>, tensor<2x5xf32>, tensor<2x5x2xi64>
}

// -----

// Values sent between pipeline stages are bf16 on both sides, whatever operation
// computes them.
// CHECK-LABEL: func @loss_grad
// CHECK-SAME:    %[[IN:.+]]: tensor<2x3xbf16> {nn.name = "cut.0.0", nn.role = #nn.role<activation>}
// CHECK-SAME:    -> (tensor<2x3xbf16> {nn.name = "cut.1.0", nn.role = #nn.role<activation>})
// CHECK-COUNT-2: arith.extf %[[IN]]
// CHECK-NEXT:    %[[SUM:.+]] = arith.addf
// CHECK-NEXT:    %[[OUT:.+]] = arith.truncf %[[SUM]]
// CHECK-NEXT:    return %[[OUT]]
func.func @loss_grad(%x: tensor<2x3xf32> {nn.name = "cut.0.0", nn.role = #nn.role<activation>})
    -> (tensor<2x3xf32> {nn.name = "cut.1.0", nn.role = #nn.role<activation>}) {
  %0 = arith.addf %x, %x : tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// -----

// A frozen parameter stays f32 at the boundary, and is gathered after it is
// rounded.
dist.mesh @mesh <["data"=2]>
// CHECK-LABEL: func @forward
// CHECK-SAME:    (%[[W:.+]]: tensor<4x6xf32>
// CHECK:         %[[WB:.+]] = arith.truncf %[[W]] {nn.storage} : tensor<4x6xf32> to tensor<4x6xbf16>
// CHECK-NEXT:    dist.constrain %[[WB]]
func.func @forward(%w: tensor<4x6xf32> {nn.name = "w", nn.role = #nn.role<constant>, nn.frozen},
                   %x: tensor<2x4xf32> {nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<2x6xf32> {nn.name = "y", nn.role = #nn.role<output>}) {
  %0 = dist.constrain %w <@mesh, [{}, {}]> : tensor<4x6xf32>
  %1 = nn.einsum "bh,hv->bv" %x, %0 : tensor<2x4xf32>, tensor<4x6xf32> -> tensor<2x6xf32>
  return %1 : tensor<2x6xf32>
}

// -----

// Without parameters there is nothing to round.
// CHECK-LABEL: func @negative_inputs
// CHECK-NOT:     bf16
func.func @negative_inputs(%x: tensor<2x3xf32> {nn.name = "x", nn.role = #nn.role<input>},
                           %y: tensor<3x2xf32> {nn.name = "y", nn.role = #nn.role<input>}) -> tensor<2x2xf32> {
  %0 = nn.einsum "ab,bc->ac" %x, %y : tensor<2x3xf32>, tensor<3x2xf32> -> tensor<2x2xf32>
  return %0 : tensor<2x2xf32>
}

// -----

// A scalar stays f32, and so does a value that is placed into it.
// CHECK-LABEL: func @scalar
// CHECK-SAME:    (%[[W:.+]]: tensor<1x1xbf16>
// CHECK:         %[[WIDE:.+]] = arith.extf %[[W]] : tensor<1x1xbf16> to tensor<1x1xf32>
// CHECK-NEXT:    %[[S:.+]] = nn.reshape %[[WIDE]] : tensor<1x1xf32> -> tensor<f32>
// CHECK-NEXT:    return %[[S]] : tensor<f32>
func.func @scalar(%w: tensor<1x1xf32> {nn.name = "w", nn.role = #nn.role<parameter>}) -> tensor<f32> {
  %0 = nn.reshape %w : tensor<1x1xf32> -> tensor<f32>
  return %0 : tensor<f32>
}

// -----

// A product with a scalar is f32.
// CHECK-LABEL: func @times_scalar
// CHECK-SAME:    (%[[W:.+]]: tensor<2x3xbf16>
// CHECK:         %[[WIDE:.+]] = arith.extf %[[W]] : tensor<2x3xbf16> to tensor<2x3xf32>
// CHECK-NEXT:    nn.einsum "ab,->ab" %[[WIDE]], %{{.+}} : tensor<2x3xf32>, tensor<f32> -> tensor<2x3xf32>
func.func @times_scalar(%w: tensor<2x3xf32> {nn.name = "w", nn.role = #nn.role<parameter>}, %s: tensor<f32>) -> tensor<2x3xf32> {
  %0 = nn.einsum "ab,->ab" %w, %s : tensor<2x3xf32>, tensor<f32> -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// -----

// A rounding of the model itself applies even where a fused kernel could read the unrounded value.
// The pass's own rounding folds into it, and the result no longer counts as rounded for storage only.
// CHECK-LABEL: func @own_rounding
// CHECK:         %[[T:.+]] = math.tanh
// CHECK-NEXT:    %[[TB:.+]] = arith.truncf %[[T]] : tensor<2x3xf32> to tensor<2x3xbf16>
// CHECK:         %[[E:.+]] = math.exp
// CHECK-NEXT:    arith.truncf %[[E]] {nn.storage} : tensor<2x3xf32> to tensor<2x3xbf16>
func.func @own_rounding(%w: tensor<2x3xf32> {nn.name = "w", nn.role = #nn.role<parameter>}) -> tensor<2x3xf32> {
  %0 = math.tanh %w : tensor<2x3xf32>
  %1 = arith.truncf %0 : tensor<2x3xf32> to tensor<2x3xbf16>
  %2 = arith.extf %1 : tensor<2x3xbf16> to tensor<2x3xf32>
  %3 = arith.addf %2, %w : tensor<2x3xf32>
  %4 = math.exp %3 : tensor<2x3xf32>
  return %4 : tensor<2x3xf32>
}
