// RUN: cleave-opt %s -split-input-file -dist-propagate | FileCheck %s
// RUN: cleave-opt %s -split-input-file "-dist-propagate=remarks=true" -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

// A batch split is propagated through; contracted dimensions are split alike.
dist.mesh @m <["d"=2, "t"=2]>
// CHECK-LABEL: func @mlp
// CHECK-SAME:    %[[W2:[a-z0-9]+]]: tensor<10x6xf32> {dist.sharding = #dist.sharding<@m, [{"t"}, {}]>})
// CHECK-SAME:    -> (tensor<4x6xf32> {dist.sharding = #dist.sharding<@m, [{"d"}, {}]>})
// CHECK:         nn.einsum "bh,hf->bf" {{.*}} [#dist.sharding<@m, [{"d"}, {"t"}]>]
// CHECK:         nn.gelu {{.*}} [#dist.sharding<@m, [{"d"}, {"t"}]>]
// CHECK:         nn.einsum "bf,fh->bh" {{.*}} [#dist.sharding<@m, [{"d"}, {}]>]
// REMARK: remark: dimension 1 of argument 1 of @mlp is split by "t", as asked
// REMARK: remark: dimension 0 of argument 2 of @mlp is split by "t", from argument 1 of @mlp
func.func @mlp(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@m, [{"d"}, {}]>},
               %w1: tensor<6x10xf32> {dist.sharding = #dist.sharding<@m, [{}, {"t"}]>},
               %w2: tensor<10x6xf32>) -> tensor<4x6xf32> {
  %0 = nn.einsum "bh,hf->bf" %x, %w1 : tensor<4x6xf32>, tensor<6x10xf32> -> tensor<4x10xf32>
  %1 = nn.gelu tanh %0 : tensor<4x10xf32>
  %2 = nn.einsum "bf,fh->bh" %1, %w2 : tensor<4x10xf32>, tensor<10x6xf32> -> tensor<4x6xf32>
  return %2 : tensor<4x6xf32>
}

// -----

// Tensors of one name share their sharding in all functions; a gradient is sharded as its parameter.
dist.mesh @m <["t"=2]>
// CHECK-LABEL: func @loss_grad
// CHECK-SAME:    -> (tensor<4xf32> {dist.sharding = #dist.sharding<@m, [{"t"}]>
func.func @loss_grad(%p: tensor<4xf32> {nn.name = "w", nn.role = #nn.role<parameter>})
    -> (tensor<4xf32> {nn.name = "w", nn.role = #nn.role<gradient>}) {
  %0 = arith.addf %p, %p : tensor<4xf32>
  return %0 : tensor<4xf32>
}
// CHECK-LABEL: func @update
// CHECK-SAME:    %[[G:[a-z0-9]+]]: tensor<4xf32> {dist.sharding = #dist.sharding<@m, [{"t"}]>, nn.name = "w", nn.role = #nn.role<gradient>}
func.func @update(%p: tensor<4xf32> {nn.name = "w", nn.role = #nn.role<parameter>, dist.sharding = #dist.sharding<@m, [{"t"}]>},
                  %g: tensor<4xf32> {nn.name = "w", nn.role = #nn.role<gradient>})
    -> (tensor<4xf32> {nn.name = "w", nn.role = #nn.role<parameter>}) {
  %0 = arith.subf %p, %g : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// Closed dimensions stay unsplit; a constant does not tie its readers; a reshape from 6 to [2, 3] stops an axis of 3.
dist.mesh @m <["t"=3]>
// CHECK-LABEL: func @negative
// CHECK-SAME:    %[[B:[a-z0-9]+]]: tensor<6xf32> {dist.sharding = #dist.sharding<@m, [{}]>}
// CHECK:         arith.addf {{.*}} [#dist.sharding<@m, [{"t"}]>]
// CHECK:         arith.addf {{.*}} [#dist.sharding<@m, [{}]>]
// CHECK:         nn.reshape {{.*}} [#dist.sharding<@m, [{}, {}]>]
func.func @negative(%a: tensor<6xf32> {dist.sharding = #dist.sharding<@m, [{"t"}]>},
                    %b: tensor<6xf32> {dist.sharding = #dist.sharding<@m, [{}]>}) -> (tensor<6xf32>, tensor<2x3xf32>) {
  %c = arith.constant dense<1.0> : tensor<6xf32>
  %0 = arith.addf %a, %c : tensor<6xf32>
  %1 = arith.addf %b, %c : tensor<6xf32>
  %2 = nn.reshape %0 : tensor<6xf32> -> tensor<2x3xf32>
  return %1, %2 : tensor<6xf32>, tensor<2x3xf32>
}

// -----

// Two of three operands are split over y: moving the third is cheaper.
dist.mesh @m <["x"=2, "y"=2]>
// CHECK-LABEL: func @cheaper
// CHECK:         math.fma {{.*}} [#dist.sharding<@m, [{"y"}]>]
func.func @cheaper(%a: tensor<8xf32> {dist.sharding = #dist.sharding<@m, [{"x"}]>},
                   %b: tensor<8xf32> {dist.sharding = #dist.sharding<@m, [{"y"}]>},
                   %c: tensor<8xf32> {dist.sharding = #dist.sharding<@m, [{"y"}]>}) -> tensor<8xf32> {
  %0 = math.fma %a, %b, %c : tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

// The cost counts bytes, not elements: a boolean mask follows the floats.
dist.mesh @m <["x"=2, "y"=2]>
// CHECK-LABEL: func @bytes
// CHECK:         arith.select {{.*}} [#dist.sharding<@m, [{"y"}]>]
func.func @bytes(%p: tensor<8xi1> {dist.sharding = #dist.sharding<@m, [{"x"}]>},
                 %b: tensor<8xf32> {dist.sharding = #dist.sharding<@m, [{"y"}]>},
                 %c: tensor<8xf32>) -> tensor<8xf32> {
  %0 = arith.select %p, %b, %c : tensor<8xi1>, tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

// A request with priority 0 wins over one with priority 1; replicated axes are
// never used.
dist.mesh @m <["x"=2, "y"=2]>
// CHECK-LABEL: func @priorities
// CHECK:         arith.addf {{.*}} [#dist.sharding<@m, [{"y"}]>]
// CHECK:         dist.constrain {{.*}} [#dist.sharding<@m, [{}]>]
func.func @priorities(%a: tensor<8xf32> {dist.sharding = #dist.sharding<@m, [{"x"}], priority = 1>},
                      %b: tensor<8xf32> {dist.sharding = #dist.sharding<@m, [{"y"}]>}) -> (tensor<8xf32>, tensor<8xf32>) {
  %0 = arith.addf %a, %b : tensor<8xf32>
  %1 = dist.constrain %0 <@m, [{?}], replicated = {"x", "y"}> : tensor<8xf32>
  return %0, %1 : tensor<8xf32>, tensor<8xf32>
}

// -----

// Each axis has its own origin; sub-axes are reported as such.
dist.mesh @m <["x"=4, "y"=2]>
// REMARK: remark: dimension 0 of argument 1 of @origins is split by "x":(1)2, as asked; then by "y", from argument 0 of @origins
func.func @origins(%a: tensor<8xf32> {dist.sharding = #dist.sharding<@m, [{"x":(1)2, "y"}]>},
                   %b: tensor<8xf32> {dist.sharding = #dist.sharding<@m, [{"x":(1)2, ?}]>}) -> tensor<8xf32> {
  %0 = arith.addf %a, %b : tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

// Tensors of one name share their sharding: a request in one function, including
// a partial sum, holds in all.
dist.mesh @m <["x"=2, "y"=2]>
// CHECK-LABEL: func @give
// CHECK-SAME:    -> (tensor<4xf32> {dist.sharding = #dist.sharding<@m, [{"x"}], partial = sum{"y"}>
// CHECK-LABEL: func @take
func.func @give(%a: tensor<4x4xf32> {dist.sharding = #dist.sharding<@m, [{"x"}, {"y"}]>})
    -> (tensor<4xf32> {nn.name = "w", nn.role = #nn.role<gradient>}) {
  %0 = nn.reduce sum %a dims = [1] : tensor<4x4xf32> -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func @take(%a: tensor<4xf32> {nn.name = "w", nn.role = #nn.role<gradient>, dist.sharding = #dist.sharding<@m, [{"x"}], partial = sum{"y"}>}) -> tensor<4xf32> {
  return %a : tensor<4xf32>
}

// -----

// An axis that one factor of a merged dimension requests is removed from the
// other factor: a candidate layout must not contain the axis twice.
dist.mesh @m <["x"=2, "y"=3]>
// CHECK-LABEL: func @crossed
// CHECK: nn.reshape %{{.*}} {dist.sharding = [#dist.sharding<@m, [{"y", "x"}, {}]>]}
func.func @crossed(%a: tensor<3x2x11xf32> {dist.sharding = #dist.sharding<@m, [{"x"}, {"y"}, {}]>})
    -> (tensor<3x22x1xf32> {dist.sharding = #dist.sharding<@m, [{"y"}, {"x"}, {}]>}) {
  %0 = nn.reshape %a : tensor<3x2x11xf32> -> tensor<6x11xf32>
  %1 = nn.reshape %0 : tensor<6x11xf32> -> tensor<3x22x1xf32>
  return %1 : tensor<3x22x1xf32>
}
