// RUN: cleave-opt %s --nn-differentiate | FileCheck %s
// RUN: cleave-opt %s --nn-differentiate=accumulate | FileCheck %s --check-prefix=ACC
// RUN: cleave-opt %s "--nn-differentiate=accumulate apart" | FileCheck %s --check-prefix=APART

// The activation is saved once and read after the mark; the broadcast of the
// bias is not saved. The input is not a parameter and gets no gradient.
// CHECK-LABEL: func @loss_grad
// CHECK-SAME:    (%[[W:.+]]: tensor<3x7xf32> {{.*}}, %[[B:.+]]: tensor<7xf32> {{.*}}, %[[X:.+]]: tensor<2x3xf32>
// CHECK-SAME:    tensor<3x7xf32> {nn.name = "w", nn.role = #nn.role<gradient>}, tensor<7xf32> {nn.name = "b", nn.role = #nn.role<gradient>}
// CHECK:         %[[Y:.+]] = arith.addf
// CHECK:         %[[T:.+]] = math.tanh %[[Y]]
// CHECK-NEXT:    %[[SAVED:.+]] = nn.save %[[T]]
// CHECK-NOT:     nn.save
// CHECK:         %[[SQUARE:.+]] = arith.mulf %[[SAVED]], %[[SAVED]]
// CHECK:         %[[DY:.+]] = arith.mulf
// CHECK-DAG:     %[[DB:.+]] = nn.reduce sum %[[DY]] dims = [0]
// CHECK-DAG:     %[[DW:.+]] = nn.einsum "bh,bv->hv" %[[X]], %[[DY]]
// CHECK:         return %{{.+}}, %{{.+}}, %[[DW]], %[[DB]]

// ACC-LABEL: func @loss_grad
// ACC-SAME:    %[[LOSS:[a-z0-9]+]]: tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}
// ACC-SAME:    %[[WEIGHT:[a-z0-9]+]]: tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}
// ACC-SAME:    %[[ACC:[a-z0-9]+]]: tensor<3x7xf32> {nn.name = "w", nn.role = #nn.role<gradient>}
// ACC-DAG:     %[[LOSSES:.+]] = arith.addf %[[LOSS]], %{{.+}} : tensor<f32>
// ACC-DAG:     %[[WEIGHTS:.+]] = arith.addf %[[WEIGHT]], %{{.+}} : tensor<f32>
// ACC-DAG:     %[[SUM:.+]] = arith.addf %[[ACC]], %{{.+}} : tensor<3x7xf32>
// ACC:         return %[[LOSSES]], %[[WEIGHTS]], %[[SUM]]

// Loss sums accumulate, gradients do not: each gradient is that of the mean.
// APART-LABEL: func @loss_grad
// APART-NOT:     nn.role = #nn.role<gradient>
// APART-SAME:    ) -> (
// APART:         %[[COUNTS:.+]] = arith.cmpf ogt, %[[WEIGHT:.+]], %{{.+}} : tensor<f32>
// APART:         %[[INVERSE:.+]] = arith.divf %{{.+}}, %[[WEIGHT]] : tensor<f32>
// APART:         %[[SEED:.+]] = arith.select %[[COUNTS]], %[[INVERSE]], %{{.+}} : tensor<i1>, tensor<f32>
// APART:         %[[DW:.+]] = nn.einsum "bh,bv->hv"
// APART:         %[[LOSS:.+]] = arith.addf %{{.+}}, %{{.+}} : tensor<f32>
// APART:         return %[[LOSS]], %{{.+}}, %[[DW]]
func.func @loss(%w: tensor<3x7xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                %b: tensor<7xf32> {nn.name = "b", nn.role = #nn.role<parameter>},
                %x: tensor<2x3xf32> {nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
  %0 = nn.einsum "bh,hv->bv" %x, %w : tensor<2x3xf32>, tensor<3x7xf32> -> tensor<2x7xf32>
  %1 = nn.broadcast %b dims = [1] : tensor<7xf32> -> tensor<2x7xf32>
  %2 = arith.addf %0, %1 : tensor<2x7xf32>
  %3 = math.tanh %2 : tensor<2x7xf32>
  %4 = nn.reduce sum %3 dims = [0, 1] : tensor<2x7xf32> -> tensor<f32>
  %one = arith.constant dense<1.0> : tensor<f32>
  return %4, %one : tensor<f32>, tensor<f32>
}
