// RUN: cleave-opt %s -split-input-file -verify-diagnostics "--nn-add-loss=loss=output:mean" | FileCheck %s

// A mean is split into its sum and its count.
// CHECK-LABEL: func @loss
// CHECK:         %[[SUM:.+]] = nn.reduce sum
// CHECK:         %[[COUNT:.+]] = arith.constant dense<4.000000e+00>
// CHECK:         return %[[SUM]], %[[COUNT]]
func.func @forward(%w: tensor<4xf32> {nn.name = "w", nn.role = #nn.role<parameter>})
    -> (tensor<f32> {nn.name = "mean", nn.role = #nn.role<output>}, tensor<4xf32> {nn.name = "other", nn.role = #nn.role<output>}) {
  %0 = nn.reduce sum %w dims = [0] : tensor<4xf32> -> tensor<f32>
  %n = arith.constant dense<4.0> : tensor<f32>
  %1 = arith.divf %0, %n : tensor<f32>
  return %1, %w : tensor<f32>, tensor<4xf32>
}

// -----

// The count may depend on inputs.
// CHECK-LABEL: func @loss
// CHECK-SAME:    %[[W:[a-z0-9]+]]: tensor<4xf32> {{.*}}, %[[MASK:[a-z0-9]+]]: tensor<4xf32>
// CHECK:         %[[SUM:.+]] = nn.reduce sum %{{.*}}
// CHECK:         %[[COUNT:.+]] = nn.reduce sum %[[MASK]]
// CHECK:         return %[[SUM]], %[[COUNT]]
func.func @forward(%w: tensor<4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                   %mask: tensor<4xf32> {nn.name = "mask", nn.role = #nn.role<input>})
    -> (tensor<f32> {nn.name = "mean", nn.role = #nn.role<output>}) {
  %0 = arith.mulf %w, %mask : tensor<4xf32>
  %1 = nn.reduce sum %0 dims = [0] : tensor<4xf32> -> tensor<f32>
  %2 = nn.reduce sum %mask dims = [0] : tensor<4xf32> -> tensor<f32>
  %3 = arith.divf %1, %2 : tensor<f32>
  return %3 : tensor<f32>
}

// -----

// A quotient whose divisor depends on parameters is not a mean.
// CHECK-LABEL: func @loss
// CHECK:         %[[VALUE:.+]] = arith.divf
// CHECK:         %[[ONE:.+]] = arith.constant dense<1.000000e+00>
// CHECK:         return %[[VALUE]], %[[ONE]]
func.func @forward(%w: tensor<4xf32> {nn.name = "w", nn.role = #nn.role<parameter>})
    -> (tensor<f32> {nn.name = "mean", nn.role = #nn.role<output>}) {
  %0 = nn.reduce sum %w dims = [0] : tensor<4xf32> -> tensor<f32>
  %1 = arith.mulf %0, %0 : tensor<f32>
  %2 = arith.divf %0, %1 : tensor<f32>
  return %2 : tensor<f32>
}

// -----

// The weight is made positive: in -(sum / -4) the signs cancel.
// CHECK-LABEL: func @loss
// CHECK:         %[[SUM:.+]] = nn.reduce sum
// CHECK:         %[[COUNT:.+]] = arith.constant dense<4.000000e+00>
// CHECK:         return %[[SUM]], %[[COUNT]]
func.func @forward(%w: tensor<4xf32> {nn.name = "w", nn.role = #nn.role<parameter>})
    -> (tensor<f32> {nn.name = "mean", nn.role = #nn.role<output>}) {
  %0 = nn.reduce sum %w dims = [0] : tensor<4xf32> -> tensor<f32>
  %n = arith.constant dense<-4.0> : tensor<f32>
  %1 = arith.divf %0, %n : tensor<f32>
  %2 = arith.negf %1 : tensor<f32>
  return %2 : tensor<f32>
}

// -----

// sum * -0.5 is the mean of two values, negated.
// CHECK-LABEL: func @loss
// CHECK:         %[[SUM:.+]] = arith.negf
// CHECK:         %[[COUNT:.+]] = arith.constant dense<2.000000e+00>
// CHECK:         return %[[SUM]], %[[COUNT]]
func.func @forward(%w: tensor<4xf32> {nn.name = "w", nn.role = #nn.role<parameter>})
    -> (tensor<f32> {nn.name = "mean", nn.role = #nn.role<output>}) {
  %0 = nn.reduce sum %w dims = [0] : tensor<4xf32> -> tensor<f32>
  %n = arith.constant dense<-0.5> : tensor<f32>
  %1 = arith.mulf %0, %n : tensor<f32>
  return %1 : tensor<f32>
}

// -----

// sum / -count: the sign moves to the sum.
// CHECK-LABEL: func @loss
// CHECK:         %[[COUNT:.+]] = nn.reduce sum %[[MASK:arg1]]
// CHECK:         arith.negf %[[COUNT]]
// CHECK:         %[[SUM:.+]] = arith.negf
// CHECK:         return %[[SUM]], %[[COUNT]]
func.func @forward(%w: tensor<4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                   %mask: tensor<4xf32> {nn.name = "mask", nn.role = #nn.role<input>})
    -> (tensor<f32> {nn.name = "mean", nn.role = #nn.role<output>}) {
  %0 = nn.reduce sum %w dims = [0] : tensor<4xf32> -> tensor<f32>
  %1 = nn.reduce sum %mask dims = [0] : tensor<4xf32> -> tensor<f32>
  %2 = arith.negf %1 : tensor<f32>
  %3 = arith.divf %0, %2 : tensor<f32>
  return %3 : tensor<f32>
}

// -----

// A sum without a count has weight 1 and keeps its sign.
// CHECK-LABEL: func @loss
// CHECK:         %[[VALUE:.+]] = nn.reduce
// CHECK:         arith.negf
// CHECK:         %[[SUM:.+]] = arith.negf %[[VALUE]]
// CHECK:         %[[ONE:.+]] = arith.constant dense<1.000000e+00>
// CHECK:         return %[[SUM]], %[[ONE]]
func.func @forward(%w: tensor<4xf32> {nn.name = "w", nn.role = #nn.role<parameter>})
    -> (tensor<f32> {nn.name = "mean", nn.role = #nn.role<output>}) {
  %0 = nn.reduce sum %w dims = [0] : tensor<4xf32> -> tensor<f32>
  %1 = arith.negf %0 : tensor<f32>
  return %1 : tensor<f32>
}

// -----

// A parameter that the loss does not depend on through floats stays unchanged, like a frozen one.
// CHECK-LABEL: func @loss
// CHECK-SAME:    {nn.name = "w", nn.role = #nn.role<parameter>}
// CHECK-SAME:    {nn.frozen, nn.name = "v", nn.role = #nn.role<constant>}
// CHECK-SAME:    {nn.frozen, nn.name = "u", nn.role = #nn.role<constant>}
// expected-warning @below {{the loss does not depend on 2 parameters ('v', 'u'), which stay as in the file; train.loss and train.logits say which outputs it reads}}
func.func @forward(%w: tensor<4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                   %v: tensor<4xf32> {nn.name = "v", nn.role = #nn.role<parameter>},
                   %u: tensor<4xf32> {nn.name = "u", nn.role = #nn.role<parameter>})
    -> (tensor<f32> {nn.name = "mean", nn.role = #nn.role<output>}, tensor<4xf32> {nn.name = "other", nn.role = #nn.role<output>}) {
  %above = arith.cmpf ogt, %w, %u : tensor<4xf32>
  %zero = arith.constant dense<0.0> : tensor<4xf32>
  %kept = arith.select %above, %w, %zero : tensor<4xi1>, tensor<4xf32>
  %0 = nn.reduce sum %kept dims = [0] : tensor<4xf32> -> tensor<f32>
  %n = arith.constant dense<4.0> : tensor<f32>
  %1 = arith.divf %0, %n : tensor<f32>
  return %1, %v : tensor<f32>, tensor<4xf32>
}
