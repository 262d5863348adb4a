// RUN: cleave-opt %s --check-inject-fault=kind=drop-collective | FileCheck %s --check-prefix=DROP
// RUN: cleave-opt %s "--check-inject-fault=kind=drop-collective index=0" | FileCheck %s --check-prefix=INDEX0
// RUN: cleave-opt %s --check-inject-fault=kind=sum-for-mean | FileCheck %s --check-prefix=MEAN
// RUN: cleave-opt %s "--check-inject-fault=kind=wrong-group index=0" | FileCheck %s --check-prefix=GROUP
// RUN: cleave-opt %s "--check-inject-fault=kind=swapped-axes index=0" | FileCheck %s --check-prefix=AXES
// RUN: cleave-opt %s "--check-inject-fault=kind=swapped-axes index=1" | FileCheck %s --check-prefix=ORDER
// RUN: cleave-opt %s --check-inject-fault=kind=bias-twice | FileCheck %s --check-prefix=BIAS
// RUN: cleave-opt %s --check-inject-fault=kind=norm-twice | FileCheck %s --check-prefix=NORM
// RUN: cleave-opt %s --check-inject-fault=kind=random-offset | FileCheck %s --check-prefix=RANDOM
// RUN: cleave-opt %s --check-inject-fault=kind=stale-buffer | FileCheck %s --check-prefix=STALE

dist.mesh @m <["x"=2, "y"=2]>

func.func @loss_grad(%x: tensor<2x3xf32>, %b: tensor<2x3xf32>, %w: tensor<3x4xf32>,
                     %seed: tensor<i64>, %ids: tensor<2xi64>) -> (tensor<2x4xf32>, tensor<2x3xf32>, tensor<i64>, tensor<2x3xf32>) {
  // AXES: dist.tile_offset tile 3 over @m {"y"}
  %offset = dist.tile_offset tile 3 over @m {"x"} : tensor<i64>
  // ORDER: dist.axis_index over @m {"y", "x"}
  %place = dist.axis_index over @m {"x", "y"} : tensor<i64>
  %sum = arith.addi %offset, %place : tensor<i64>

  %dot = nn.einsum "ij,jk->ik" %x, %w : tensor<2x3xf32>, tensor<3x4xf32> -> tensor<2x4xf32>
  // GROUP: dist.all_reduce sum %{{.+}} over @m {"y"} purpose activation
  // INDEX0-LABEL: func @loss_grad
  // INDEX0-NOT: purpose activation
  // DROP: purpose activation
  %all = dist.all_reduce sum %dot over @m {"x"} purpose activation : tensor<2x4xf32>

  // BIAS: %[[BEFORE:.+]] = arith.addf %arg0, %arg1 : tensor<2x3xf32>
  // BIAS: %[[SUM:.+]] = dist.all_reduce sum %[[BEFORE]] over @m {"y"} purpose gradient
  // BIAS: nn.dropout %[[SUM]]
  // DROP-NOT: dist.all_reduce sum %arg0
  // MEAN: %[[G:.+]] = dist.all_reduce sum %{{.+}} over @m {"y"} purpose gradient
  // MEAN: %[[TWO:.+]] = arith.constant dense<2.000000e+00>
  // MEAN: %[[SCALED:.+]] = arith.mulf %[[G]], %[[TWO]]
  // MEAN: arith.addf %[[SCALED]]
  %g = dist.all_reduce sum %x over @m {"y"} purpose gradient : tensor<2x3xf32>
  %biased = arith.addf %g, %b : tensor<2x3xf32>
  // RANDOM: %[[STEP:.+]] = arith.constant dense<1>
  // RANDOM: %[[NEXT:.+]] = arith.addi %{{.+}}, %[[STEP]] : tensor<i64>
  // RANDOM: nn.dropout %{{.+}} offsets(%[[NEXT]])
  %dropped = nn.dropout %biased, %seed, %seed, %ids offsets(%offset) p = 0.1 op_id = 0 global_shape = [2, 6] : tensor<2x3xf32>, tensor<2xi64>
  return %all, %g, %sum, %dropped : tensor<2x4xf32>, tensor<2x3xf32>, tensor<i64>, tensor<2x3xf32>
}

// DROP: @update
// STALE: func @update(%[[OLD:[^:]+]]: tensor<3xf32>
func.func @update(%w: tensor<3xf32> {nn.name = "w", nn.role = #nn.role<parameter>}, %g: tensor<3xf32>, %part: tensor<f32>)
    -> (tensor<3xf32> {nn.name = "w", nn.role = #nn.role<parameter>}, tensor<f32>) {
  // The first rank of the group contributes its share twice.
  // NORM: %[[PLACE:.+]] = dist.axis_index over @m {"x"}
  // NORM: %[[ISFIRST:.+]] = arith.cmpi eq, %[[PLACE]]
  // NORM: %[[TIMES:.+]] = arith.select %[[ISFIRST]]
  // NORM: %[[SHARE:.+]] = arith.mulf %{{.+}}, %[[TIMES]]
  // NORM: dist.all_reduce sum %[[SHARE]] over @m {"x"} purpose norm
  %norm = dist.all_reduce sum %part over @m {"x"} purpose norm : tensor<f32>
  %new = arith.subf %w, %g : tensor<3xf32>
  // STALE: return %[[OLD]],
  return %new, %norm : tensor<3xf32>, tensor<f32>
}
