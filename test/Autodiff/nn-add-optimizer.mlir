// RUN: cleave-opt %s --nn-add-optimizer --canonicalize | FileCheck %s
// RUN: cleave-opt %s "--nn-add-optimizer=optimizer=sgd clip-norm=0 no-decay=w" --canonicalize | FileCheck %s --check-prefix=SGD
// RUN: cleave-opt %s "--nn-add-optimizer=apart clip-norm=0" --canonicalize | FileCheck %s --check-prefix=APART
// RUN: cleave-opt %s "--nn-add-optimizer=began=1:b" --canonicalize | FileCheck %s --check-prefix=BEGAN
// RUN: not cleave-opt %s "--nn-add-optimizer=apart" 2>&1 | FileCheck %s --check-prefix=CLIPPED
// RUN: not cleave-opt %s "--nn-add-optimizer=began=1:c" 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not cleave-opt %s "--nn-add-optimizer=no-decay=v,.*" 2>&1 | FileCheck %s --check-prefix=IDLE

// IDLE: error: pattern 'v' of train.no_decay matches none of the {{.*}} parameters

// If the loss or the norm is not finite, parameters, state and step count keep their old values.
// Weight decay applies to matrices: w has two dimensions in the file, three in its view.
// CHECK-LABEL: func @update
// CHECK-SAME:    %[[W:[a-z0-9]+]]: tensor<3x2x2xf32>
// CHECK-SAME:    %[[M:[a-z0-9]+]]: tensor<3x2x2xf32> {nn.count = "count.0", nn.name = "w.m", nn.role = #nn.role<state>}
// CHECK-SAME:    %[[COUNT:[a-z0-9]+]]: tensor<i64> {nn.name = "count.0", nn.role = #nn.role<count>}
// CHECK-SAME:    %[[DW:[a-z0-9]+]]: tensor<3x2x2xf32> {nn.name = "w", nn.role = #nn.role<gradient>}
// CHECK-SAME:    %[[DB:[a-z0-9]+]]: tensor<4xf32> {nn.name = "b", nn.role = #nn.role<gradient>}
// CHECK-SAME:    %[[WEIGHT:[a-z0-9]+]]: tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}
// CHECK-SAME:    tensor<i64> {nn.name = "count.0", nn.role = #nn.role<count>}
// CHECK-SAME:    tensor<f32> {nn.name = "grad_norm", nn.role = #nn.role<metric>}
// CHECK-SAME:    tensor<f32> {nn.name = "finite", nn.role = #nn.role<metric>})
// CHECK:         arith.mulf %[[DW]], %[[DW]]
// CHECK:         arith.mulf %[[DB]], %[[DB]]
// CHECK:         %[[INVERSE:.+]] = arith.divf %{{.+}}, %[[WEIGHT]]
// CHECK:         %[[FACTOR:.+]] = arith.minimumf
// CHECK:         %[[SCALE:.+]] = arith.mulf %[[INVERSE]], %[[FACTOR]]
// CHECK:         arith.cmpf ole
// CHECK:         %[[FINITE:.+]] = arith.andi
// CHECK:         %[[NEXT:.+]] = arith.addi %[[COUNT]]
// CHECK:         %[[NEW:.+]], %[[NEWM:.+]], %{{.+}} = nn.adamw %[[W]], %[[M]], %{{.+}}, %[[DW]], %[[SCALE]], %{{.+}}, %[[NEXT]]
// CHECK-SAME:      weight_decay = 1.000000e-02
// CHECK:         nn.broadcast %[[FINITE]] dims = []
// CHECK:         arith.select %{{.+}}, %[[NEW]], %[[W]]
// CHECK:         arith.select %{{.+}}, %[[NEWM]], %[[M]]
// CHECK:         nn.adamw
// CHECK-SAME:      weight_decay = 0.000000e+00
// CHECK:         arith.select %[[FINITE]], %[[NEXT]], %[[COUNT]] : tensor<i1>, tensor<i64>
// CHECK-LABEL: func @init_state() -> (tensor<3x2x2xf32> {nn.count = "count.0", nn.name = "w.m", nn.role = #nn.role<state>}
// CHECK-SAME:    tensor<i64> {nn.name = "count.0", nn.role = #nn.role<count>})

// Each parameter group has its own step count.
// BEGAN-LABEL: func @update
// BEGAN-SAME:    {nn.count = "count.0", nn.name = "w.m"
// BEGAN-SAME:    {nn.count = "count.1", nn.name = "b.m"
// BEGAN-SAME:    %[[C0:[a-z0-9]+]]: tensor<i64> {nn.name = "count.0", nn.role = #nn.role<count>}
// BEGAN-SAME:    %[[C1:[a-z0-9]+]]: tensor<i64> {nn.name = "count.1", nn.role = #nn.role<count>}
// BEGAN:         %[[N0:.+]] = arith.addi %[[C0]]
// BEGAN:         %[[N1:.+]] = arith.addi %[[C1]]
// BEGAN:         nn.adamw {{.+}}, %[[N0]] beta1
// BEGAN:         nn.adamw {{.+}}, %[[N1]] beta1
// UNKNOWN: error: train.began names 'c', which is no parameter of the model

// SGD-LABEL: func @update
// SGD-NOT:     arith.minimumf
// SGD:         nn.sgd
// SGD-SAME:      weight_decay = 0.000000e+00

// Every update counts; none is skipped.
// APART-LABEL: func @update
// APART-SAME:    %[[OLD:[a-z0-9]+]]: tensor<i64> {nn.name = "count.0", nn.role = #nn.role<count>}
// APART-NOT:     nn.role = #nn.role<metric>
// APART-DAG:     %[[ONE:.+]] = arith.constant dense<1> : tensor<i64>
// APART-DAG:     %[[SCALE:.+]] = arith.constant dense<1.000000e+00> : tensor<f32>
// APART:         %[[COUNT:.+]] = arith.addi %[[OLD]], %[[ONE]]
// APART-NOT:     math.sqrt
// APART:         nn.adamw %{{[^,]+}}, %{{[^,]+}}, %{{[^,]+}}, %{{[^,]+}}, %[[SCALE]], %{{[^,]+}}, %[[COUNT]]
// APART-NOT:     arith.select

// CLIPPED: error: updates after each microbatch have no norm of all gradients
func.func @loss_grad(%w: tensor<3x2x2xf32> {nn.name = "w", nn.role = #nn.role<parameter>,
                                            nn.view = #nn.view<shape = [3, 4], view = [3, 2, 2]>},
                     %b: tensor<4xf32> {nn.name = "b", nn.role = #nn.role<parameter>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>},
        tensor<3x2x2xf32> {nn.name = "w", nn.role = #nn.role<gradient>}, tensor<4xf32> {nn.name = "b", nn.role = #nn.role<gradient>}) {
  %one = arith.constant dense<1.0> : tensor<f32>
  return %one, %one, %w, %b : tensor<f32>, tensor<f32>, tensor<3x2x2xf32>, tensor<4xf32>
}
