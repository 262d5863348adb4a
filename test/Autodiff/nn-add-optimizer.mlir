// RUN: cleave-opt %s --nn-add-optimizer --canonicalize | FileCheck %s
// RUN: cleave-opt %s "--nn-add-optimizer=optimizer=sgd clip-norm=0 no-decay=w" --canonicalize | FileCheck %s --check-prefix=SGD
// RUN: cleave-opt %s "--nn-add-optimizer=skip-nonfinite" --canonicalize | FileCheck %s --check-prefix=SKIP
// RUN: cleave-opt %s "--nn-add-optimizer=updates=4 clip-norm=0" --canonicalize | FileCheck %s --check-prefix=APART
// RUN: not cleave-opt %s "--nn-add-optimizer=updates=4" 2>&1 | FileCheck %s --check-prefix=CLIPPED
// RUN: cleave-opt %s "--nn-add-optimizer=no-decay=v,.*" 2>&1 | FileCheck %s --check-prefix=IDLE

// IDLE: warning: pattern 'v' of train.no_decay matches no parameter
// IDLE-NOT: warning:

// Decay is for the matrix: w has two dimensions in the file, three in its view.
// CHECK-LABEL: func @update
// CHECK-SAME:    %[[W:[a-z0-9]+]]: tensor<3x2x2xf32>
// CHECK-SAME:    %[[DW:[a-z0-9]+]]: tensor<3x2x2xf32> {nn.name = "w", nn.role = "gradient"}
// CHECK-SAME:    %[[DB:[a-z0-9]+]]: tensor<4xf32> {nn.name = "b", nn.role = "gradient"}
// CHECK-SAME:    %[[WEIGHT:[a-z0-9]+]]: tensor<f32> {nn.name = "weight", nn.role = "weight"}
// CHECK-SAME:    tensor<f32> {nn.name = "grad_norm", nn.role = "metric"})
// CHECK:         arith.mulf %[[DW]], %[[DW]]
// CHECK:         arith.mulf %[[DB]], %[[DB]]
// CHECK:         %[[INVERSE:.+]] = arith.divf %{{.+}}, %[[WEIGHT]]
// CHECK:         %[[FACTOR:.+]] = arith.minimumf
// CHECK:         %[[SCALE:.+]] = arith.mulf %[[INVERSE]], %[[FACTOR]]
// CHECK:         nn.adamw %[[W]], %{{.+}}, %{{.+}}, %[[DW]], %[[SCALE]]
// CHECK-SAME:      weight_decay = 1.000000e-02
// CHECK:         nn.adamw
// CHECK-SAME:      weight_decay = 0.000000e+00
// CHECK-LABEL: func @init_state() -> (tensor<3x2x2xf32> {nn.name = "w.m", nn.role = "state"}

// The old values where loss or norm are not below the largest number.
// SKIP-LABEL: func @update
// SKIP-SAME:    %[[W:[a-z0-9]+]]: tensor<3x2x2xf32>
// SKIP-SAME:    %[[M:[a-z0-9]+]]: tensor<3x2x2xf32> {nn.name = "w.m"
// SKIP-SAME:    tensor<f32> {nn.name = "finite", nn.role = "metric"})
// SKIP:         arith.cmpf ole
// SKIP:         %[[FINITE:.+]] = arith.andi
// SKIP:         %[[NEW:.+]], %[[NEWM:.+]], %{{.+}} = nn.adamw %[[W]]
// SKIP:         nn.broadcast %[[FINITE]] dims = []
// SKIP:         arith.select %{{.+}}, %[[NEW]], %[[W]]
// SKIP:         arith.select %{{.+}}, %[[NEWM]], %[[M]]

// SGD-LABEL: func @update
// SGD-NOT:     arith.minimumf
// SGD:         nn.sgd
// SGD-SAME:      weight_decay = 0.000000e+00

// The fifth update is that of microbatch 0 of step 2.
// APART-LABEL: func @update
// APART-SAME:    %[[STEP:[a-z0-9]+]]: tensor<i64> {nn.name = "step", nn.role = "step"}
// APART-SAME:    %[[K:[a-z0-9]+]]: tensor<i64> {nn.name = "update.microbatch", nn.role = "microbatch"})
// APART-NOT:     nn.role = "metric"
// APART-DAG:     %[[FOUR:.+]] = arith.constant dense<4> : tensor<i64>
// APART-DAG:     %[[ONE:.+]] = arith.constant dense<1> : tensor<i64>
// APART-DAG:     %[[SCALE:.+]] = arith.constant dense<1.000000e+00> : tensor<f32>
// APART:         %[[BEFORE:.+]] = arith.subi %[[STEP]], %[[ONE]]
// APART:         %[[ALL:.+]] = arith.muli %[[BEFORE]], %[[FOUR]]
// APART:         %[[SUM:.+]] = arith.addi %[[ALL]], %[[K]]
// APART:         %[[COUNT:.+]] = arith.addi %[[SUM]], %[[ONE]]
// APART-NOT:     math.sqrt
// APART:         nn.adamw %{{[^,]+}}, %{{[^,]+}}, %{{[^,]+}}, %{{[^,]+}}, %[[SCALE]], %{{[^,]+}}, %[[COUNT]]

// CLIPPED: error: updates after each microbatch have no norm of all gradients
func.func @loss_grad(%w: tensor<3x2x2xf32> {nn.name = "w", nn.role = "parameter",
                                            nn.view = {shape = array<i64: 3, 4>, view = array<i64: 3, 2, 2>}},
                     %b: tensor<4xf32> {nn.name = "b", nn.role = "parameter"})
    -> (tensor<f32> {nn.name = "loss", nn.role = "loss"}, tensor<f32> {nn.name = "weight", nn.role = "weight"},
        tensor<3x2x2xf32> {nn.name = "w", nn.role = "gradient"}, tensor<4xf32> {nn.name = "b", nn.role = "gradient"}) {
  %one = arith.constant dense<1.0> : tensor<f32>
  return %one, %one, %w, %b : tensor<f32>, tensor<f32>, tensor<3x2x2xf32>, tensor<4xf32>
}
