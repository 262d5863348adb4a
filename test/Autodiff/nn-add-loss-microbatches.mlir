// RUN: cleave-opt %s -split-input-file -verify-diagnostics "--nn-add-loss=loss=output:loss microbatches=3" | FileCheck %s

// 0.5 times a mean whose count is a sum over an input: the sum and the count
// both accumulate over microbatches.
// CHECK-LABEL: func @loss
// CHECK-SAME:    %[[MASK:arg1]]: tensor<2xf32>
// CHECK-NOT:     nn.whole_step
// CHECK:         %[[SUM:.+]] = nn.reduce sum
// CHECK:         %[[COUNT:.+]] = nn.reduce sum %[[MASK]]
// CHECK:         %[[SCALED:.+]] = arith.mulf %[[SUM]], %
// CHECK:         return %[[SCALED]], %[[COUNT]]

func.func @forward(%x: tensor<2xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>},
                   %mask: tensor<2xf32> {nn.batch_dim = 0 : i64, nn.name = "mask", nn.role = #nn.role<input>},
                   %w: tensor<f32> {nn.name = "w", nn.role = #nn.role<parameter>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<output>}) {
  %all = nn.broadcast %w dims = [] : tensor<f32> -> tensor<2xf32>
  %y = arith.mulf %x, %all : tensor<2xf32>
  %0 = arith.mulf %y, %mask : tensor<2xf32>
  %1 = nn.reduce sum %0 dims = [0] : tensor<2xf32> -> tensor<f32>
  %2 = nn.reduce sum %mask dims = [0] : tensor<2xf32> -> tensor<f32>
  %3 = arith.divf %1, %2 : tensor<f32>
  %half = arith.constant dense<0.5> : tensor<f32>
  %4 = arith.mulf %3, %half : tensor<f32>
  return %4 : tensor<f32>
}
func.func @forward_step(%x: tensor<6xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>},
                        %mask: tensor<6xf32> {nn.batch_dim = 0 : i64, nn.name = "mask", nn.role = #nn.role<input>},
                        %w: tensor<f32> {nn.name = "w", nn.role = #nn.role<parameter>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<output>}) {
  %all = nn.broadcast %w dims = [] : tensor<f32> -> tensor<6xf32>
  %y = arith.mulf %x, %all : tensor<6xf32>
  %0 = arith.mulf %y, %mask : tensor<6xf32>
  %1 = nn.reduce sum %0 dims = [0] : tensor<6xf32> -> tensor<f32>
  %2 = nn.reduce sum %mask dims = [0] : tensor<6xf32> -> tensor<f32>
  %3 = arith.divf %1, %2 : tensor<f32>
  %half = arith.constant dense<0.5> : tensor<f32>
  %4 = arith.mulf %3, %half : tensor<f32>
  return %4 : tensor<f32>
}

// -----

// A mean over samples, and a mean over a count bounded below by 1: each
// microbatch divides by the count of the whole step (six samples, or their mask).
// CHECK-LABEL: func @loss
// CHECK-SAME:    %[[MASK:arg1]]: tensor<2xf32> {nn.batch_dim = 0 : i64, nn.name = "mask", nn.role = #nn.role<input>}
// CHECK-SAME:    %[[STEP:arg3]]: tensor<6xf32> {nn.batch_dim = 0 : i64, nn.name = "mask.step", nn.role = #nn.role<input>, nn.whole_step = "mask"}
// CHECK:         %[[SIX:.+]] = arith.constant dense<6.000000e+00>
// CHECK:         %[[FIRST:.+]] = arith.divf %{{.+}}, %[[SIX]]
// CHECK:         %[[COUNT:.+]] = nn.reduce sum %[[STEP]]
// CHECK:         %[[BOUND:.+]] = arith.maximumf %[[COUNT]]
// CHECK:         %[[SECOND:.+]] = arith.divf %{{.+}}, %[[BOUND]]
// CHECK:         %[[BOTH:.+]] = arith.addf %[[FIRST]], %[[SECOND]]
// CHECK:         %[[THREE:.+]] = arith.constant dense<3.000000e+00>
// CHECK:         %[[SUM:.+]] = arith.mulf %[[BOTH]], %[[THREE]]
// CHECK:         %[[ONE:.+]] = arith.constant dense<1.000000e+00>
// CHECK:         return %[[SUM]], %[[ONE]]
func.func @forward(%x: tensor<2xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>},
                   %mask: tensor<2xf32> {nn.batch_dim = 0 : i64, nn.name = "mask", nn.role = #nn.role<input>},
                   %w: tensor<f32> {nn.name = "w", nn.role = #nn.role<parameter>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<output>}) {
  %all = nn.broadcast %w dims = [] : tensor<f32> -> tensor<2xf32>
  %y = arith.mulf %x, %all : tensor<2xf32>
  %n = arith.constant dense<2.0> : tensor<f32>
  %0 = nn.reduce sum %y dims = [0] : tensor<2xf32> -> tensor<f32>
  %1 = arith.divf %0, %n : tensor<f32>
  %2 = arith.mulf %y, %mask : tensor<2xf32>
  %3 = nn.reduce sum %2 dims = [0] : tensor<2xf32> -> tensor<f32>
  %4 = nn.reduce sum %mask dims = [0] : tensor<2xf32> -> tensor<f32>
  %one = arith.constant dense<1.0> : tensor<f32>
  %5 = arith.maximumf %4, %one : tensor<f32>
  %6 = arith.divf %3, %5 : tensor<f32>
  %7 = arith.addf %1, %6 : tensor<f32>
  return %7 : tensor<f32>
}
func.func @forward_step(%x: tensor<6xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>},
                        %mask: tensor<6xf32> {nn.batch_dim = 0 : i64, nn.name = "mask", nn.role = #nn.role<input>},
                        %w: tensor<f32> {nn.name = "w", nn.role = #nn.role<parameter>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<output>}) {
  %all = nn.broadcast %w dims = [] : tensor<f32> -> tensor<6xf32>
  %y = arith.mulf %x, %all : tensor<6xf32>
  %n = arith.constant dense<6.0> : tensor<f32>
  %0 = nn.reduce sum %y dims = [0] : tensor<6xf32> -> tensor<f32>
  %1 = arith.divf %0, %n : tensor<f32>
  %2 = arith.mulf %y, %mask : tensor<6xf32>
  %3 = nn.reduce sum %2 dims = [0] : tensor<6xf32> -> tensor<f32>
  %4 = nn.reduce sum %mask dims = [0] : tensor<6xf32> -> tensor<f32>
  %one = arith.constant dense<1.0> : tensor<f32>
  %5 = arith.maximumf %4, %one : tensor<f32>
  %6 = arith.divf %3, %5 : tensor<f32>
  %7 = arith.addf %1, %6 : tensor<f32>
  return %7 : tensor<f32>
}

// -----

// Each sample is divided by the count of the whole step, which is broadcast to
// the microbatch's two samples.
// CHECK-LABEL: func @loss
// CHECK-SAME:    %[[STEP:arg3]]: tensor<6xf32> {{.*}}nn.whole_step = "mask"
// CHECK:         %[[COUNT:.+]] = nn.reduce sum %[[STEP]]
// CHECK:         %[[EACH:.+]] = nn.broadcast %[[COUNT]] dims = [] : tensor<f32> -> tensor<2xf32>
// CHECK:         arith.divf %{{.+}}, %[[EACH]] : tensor<2xf32>
func.func @forward(%x: tensor<2xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>},
                   %mask: tensor<2xf32> {nn.batch_dim = 0 : i64, nn.name = "mask", nn.role = #nn.role<input>},
                   %w: tensor<f32> {nn.name = "w", nn.role = #nn.role<parameter>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<output>}) {
  %all = nn.broadcast %w dims = [] : tensor<f32> -> tensor<2xf32>
  %y = arith.mulf %x, %all : tensor<2xf32>
  %1 = nn.reduce sum %mask dims = [0] : tensor<2xf32> -> tensor<f32>
  %2 = nn.broadcast %1 dims = [] : tensor<f32> -> tensor<2xf32>
  %3 = arith.divf %y, %2 : tensor<2xf32>
  %4 = nn.reduce sum %3 dims = [0] : tensor<2xf32> -> tensor<f32>
  return %4 : tensor<f32>
}
func.func @forward_step(%x: tensor<6xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>},
                        %mask: tensor<6xf32> {nn.batch_dim = 0 : i64, nn.name = "mask", nn.role = #nn.role<input>},
                        %w: tensor<f32> {nn.name = "w", nn.role = #nn.role<parameter>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<output>}) {
  %all = nn.broadcast %w dims = [] : tensor<f32> -> tensor<6xf32>
  %y = arith.mulf %x, %all : tensor<6xf32>
  %1 = nn.reduce sum %mask dims = [0] : tensor<6xf32> -> tensor<f32>
  %2 = nn.broadcast %1 dims = [] : tensor<f32> -> tensor<6xf32>
  %3 = arith.divf %y, %2 : tensor<6xf32>
  %4 = nn.reduce sum %3 dims = [0] : tensor<6xf32> -> tensor<f32>
  return %4 : tensor<f32>
}

// -----

// Dividing each sample by the batch size uses the batch size of the whole step.
// CHECK-LABEL: func @loss
// CHECK:         %[[SIX:.+]] = arith.constant dense<6.000000e+00> : tensor<2xf32>
// CHECK:         arith.divf %{{.+}}, %[[SIX]] : tensor<2xf32>
func.func @forward(%x: tensor<2xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>},
                   %w: tensor<f32> {nn.name = "w", nn.role = #nn.role<parameter>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<output>}) {
  %all = nn.broadcast %w dims = [] : tensor<f32> -> tensor<2xf32>
  %y = arith.mulf %x, %all : tensor<2xf32>
  %n = arith.constant dense<2.0> : tensor<2xf32>
  %1 = arith.divf %y, %n : tensor<2xf32>
  %2 = nn.reduce sum %1 dims = [0] : tensor<2xf32> -> tensor<f32>
  return %2 : tensor<f32>
}
func.func @forward_step(%x: tensor<6xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>},
                        %w: tensor<f32> {nn.name = "w", nn.role = #nn.role<parameter>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<output>}) {
  %all = nn.broadcast %w dims = [] : tensor<f32> -> tensor<6xf32>
  %y = arith.mulf %x, %all : tensor<6xf32>
  %n = arith.constant dense<6.0> : tensor<6xf32>
  %1 = arith.divf %y, %n : tensor<6xf32>
  %2 = nn.reduce sum %1 dims = [0] : tensor<6xf32> -> tensor<f32>
  return %2 : tensor<f32>
}

// -----

// The square root of a sum over samples does not accumulate over microbatches.
func.func @forward(%x: tensor<2xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>},
                   %w: tensor<f32> {nn.name = "w", nn.role = #nn.role<parameter>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<output>}) {
  %all = nn.broadcast %w dims = [] : tensor<f32> -> tensor<2xf32>
  %y = arith.mulf %x, %all : tensor<2xf32>
  %0 = nn.reduce sum %y dims = [0] : tensor<2xf32> -> tensor<f32>
  // expected-error @below {{the loss 'loss' is not known to add up over train.microbatches = 3: 'math.sqrt' is not linear in a sum over samples that depends on parameters; set train.microbatches = 1}}
  %1 = math.sqrt %0 : tensor<f32>
  return %1 : tensor<f32>
}

// -----

// Samples are compared with each other.
func.func @forward(%x: tensor<2x4xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>},
                   %w: tensor<4xf32> {nn.name = "w", nn.role = #nn.role<parameter>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<output>}) {
  %all = nn.broadcast %w dims = [1] : tensor<4xf32> -> tensor<2x4xf32>
  %y = arith.mulf %x, %all : tensor<2x4xf32>
  // expected-error @below {{'nn.einsum' compares samples with each other}}
  %0 = nn.einsum "ac,bc->ab" %y, %y : tensor<2x4xf32>, tensor<2x4xf32> -> tensor<2x2xf32>
  %1 = math.exp %0 : tensor<2x2xf32>
  %2 = nn.reduce sum %1 dims = [0, 1] : tensor<2x2xf32> -> tensor<f32>
  return %2 : tensor<f32>
}

// -----

// A maximum over all samples.
func.func @forward(%x: tensor<2xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>},
                   %w: tensor<f32> {nn.name = "w", nn.role = #nn.role<parameter>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<output>}) {
  %all = nn.broadcast %w dims = [] : tensor<f32> -> tensor<2xf32>
  %y = arith.mulf %x, %all : tensor<2xf32>
  // expected-error @below {{'nn.reduce' depends on several samples, and adds none up}}
  %0 = nn.reduce max %y dims = [0] : tensor<2xf32> -> tensor<f32>
  return %0 : tensor<f32>
}

// -----

// A sample is weighted by its index in the batch.
func.func @forward(%x: tensor<2xi64> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>},
                   %w: tensor<f32> {nn.name = "w", nn.role = #nn.role<parameter>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<output>}) {
  %i = nn.iota dim = 0 : tensor<2xi64>
  %0 = arith.muli %x, %i : tensor<2xi64>
  %1 = arith.sitofp %0 : tensor<2xi64> to tensor<2xf32>
  %all = nn.broadcast %w dims = [] : tensor<f32> -> tensor<2xf32>
  %2 = arith.mulf %1, %all : tensor<2xf32>
  %3 = nn.reduce sum %2 dims = [0] : tensor<2xf32> -> tensor<f32>
  return %3 : tensor<f32>
}
func.func @forward_step(%x: tensor<6xi64> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>},
                        %w: tensor<f32> {nn.name = "w", nn.role = #nn.role<parameter>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<output>}) {
  %i = nn.iota dim = 0 : tensor<6xi64>
  // expected-error @below {{'arith.muli' reads single samples together with an order of samples, or with a value that depends on several of them}}
  %0 = arith.muli %x, %i : tensor<6xi64>
  %1 = arith.sitofp %0 : tensor<6xi64> to tensor<6xf32>
  %all = nn.broadcast %w dims = [] : tensor<f32> -> tensor<6xf32>
  %2 = arith.mulf %1, %all : tensor<6xf32>
  %3 = nn.reduce sum %2 dims = [0] : tensor<6xf32> -> tensor<f32>
  return %3 : tensor<f32>
}

// -----

// An input selects one sample: the others are not summed with it.
func.func @forward(%x: tensor<2xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>},
                   %at: tensor<1xi64> {nn.batch_dim = -1 : i64, nn.name = "at", nn.role = #nn.role<input>},
                   %w: tensor<f32> {nn.name = "w", nn.role = #nn.role<parameter>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<output>}) {
  %all = nn.broadcast %w dims = [] : tensor<f32> -> tensor<2xf32>
  %y = arith.mulf %x, %all : tensor<2xf32>
  %0 = nn.gather %y, %at dim = 0 : tensor<2xf32>, tensor<1xi64> -> tensor<1xf32>
  %1 = nn.reduce sum %0 dims = [0] : tensor<1xf32> -> tensor<f32>
  return %1 : tensor<f32>
}
func.func @forward_step(%x: tensor<6xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>},
                        %at: tensor<1xi64> {nn.batch_dim = -1 : i64, nn.name = "at", nn.role = #nn.role<input>},
                        %w: tensor<f32> {nn.name = "w", nn.role = #nn.role<parameter>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<output>}) {
  %all = nn.broadcast %w dims = [] : tensor<f32> -> tensor<6xf32>
  %y = arith.mulf %x, %all : tensor<6xf32>
  // expected-error @below {{'nn.gather' depends on several samples, and adds none up}}
  %0 = nn.gather %y, %at dim = 0 : tensor<6xf32>, tensor<1xi64> -> tensor<1xf32>
  %1 = nn.reduce sum %0 dims = [0] : tensor<1xf32> -> tensor<f32>
  return %1 : tensor<f32>
}

// -----

// Each row of the reshape mixes elements of several samples, though in the batch
// of the step each row begins with a new sample.
func.func @forward(%x: tensor<2x8xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>},
                   %w: tensor<f32> {nn.name = "w", nn.role = #nn.role<parameter>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<output>}) {
  %all = nn.broadcast %w dims = [] : tensor<f32> -> tensor<2x8xf32>
  %y = arith.mulf %x, %all : tensor<2x8xf32>
  %0 = nn.reshape %y : tensor<2x8xf32> -> tensor<8x2xf32>
  %1 = nn.softmax %0 : tensor<8x2xf32>
  %2 = nn.reshape %1 : tensor<8x2xf32> -> tensor<2x8xf32>
  %3 = arith.mulf %2, %y : tensor<2x8xf32>
  %4 = nn.reduce sum %3 dims = [0, 1] : tensor<2x8xf32> -> tensor<f32>
  return %4 : tensor<f32>
}
func.func @forward_step(%x: tensor<6x8xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>},
                        %w: tensor<f32> {nn.name = "w", nn.role = #nn.role<parameter>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<output>}) {
  %all = nn.broadcast %w dims = [] : tensor<f32> -> tensor<6x8xf32>
  %y = arith.mulf %x, %all : tensor<6x8xf32>
  // expected-error @below {{'nn.reshape' has another layout of samples in the graph of a microbatch than in that of the batch}}
  %0 = nn.reshape %y : tensor<6x8xf32> -> tensor<8x6xf32>
  %1 = nn.softmax %0 : tensor<8x6xf32>
  %2 = nn.reshape %1 : tensor<8x6xf32> -> tensor<6x8xf32>
  %3 = arith.mulf %2, %y : tensor<6x8xf32>
  %4 = nn.reduce sum %3 dims = [0, 1] : tensor<6x8xf32> -> tensor<f32>
  return %4 : tensor<f32>
}

// -----

// Weights computed without any sample, but from the number of samples.
func.func @forward(%x: tensor<2x8xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>},
                   %w: tensor<8xf32> {nn.name = "w", nn.role = #nn.role<parameter>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<output>}) {
  %all = nn.broadcast %w dims = [1] : tensor<8xf32> -> tensor<2x8xf32>
  %0 = nn.reshape %all : tensor<2x8xf32> -> tensor<8x2xf32>
  %1 = nn.softmax %0 : tensor<8x2xf32>
  %2 = nn.reshape %1 : tensor<8x2xf32> -> tensor<2x8xf32>
  %3 = arith.mulf %2, %x : tensor<2x8xf32>
  %4 = nn.reduce sum %3 dims = [0, 1] : tensor<2x8xf32> -> tensor<f32>
  return %4 : tensor<f32>
}
func.func @forward_step(%x: tensor<6x8xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>},
                        %w: tensor<8xf32> {nn.name = "w", nn.role = #nn.role<parameter>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<output>}) {
  %all = nn.broadcast %w dims = [1] : tensor<8xf32> -> tensor<6x8xf32>
  %0 = nn.reshape %all : tensor<6x8xf32> -> tensor<8x6xf32>
  %1 = nn.softmax %0 : tensor<8x6xf32>
  %2 = nn.reshape %1 : tensor<8x6xf32> -> tensor<6x8xf32>
  // expected-error @below {{'arith.mulf' reads single samples together with an order of samples, or with a value that depends on several of them}}
  %3 = arith.mulf %2, %x : tensor<6x8xf32>
  %4 = nn.reduce sum %3 dims = [0, 1] : tensor<6x8xf32> -> tensor<f32>
  return %4 : tensor<f32>
}

// -----

// The number of samples decides which dimension is transposed.
func.func @forward(%x: tensor<2x3x3xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>},
                   %w: tensor<3xf32> {nn.name = "w", nn.role = #nn.role<parameter>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<output>}) {
  %0 = nn.transpose %x [0, 1, 2] : tensor<2x3x3xf32> -> tensor<2x3x3xf32>
  %all = nn.broadcast %w dims = [2] : tensor<3xf32> -> tensor<2x3x3xf32>
  %1 = arith.mulf %0, %all : tensor<2x3x3xf32>
  %2 = nn.reduce sum %1 dims = [0, 1, 2] : tensor<2x3x3xf32> -> tensor<f32>
  return %2 : tensor<f32>
}
func.func @forward_step(%x: tensor<6x3x3xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>},
                        %w: tensor<3xf32> {nn.name = "w", nn.role = #nn.role<parameter>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<output>}) {
  // expected-error @below {{'nn.transpose' has another layout of samples in the graph of a microbatch than in that of the batch}}
  %0 = nn.transpose %x [0, 2, 1] : tensor<6x3x3xf32> -> tensor<6x3x3xf32>
  %all = nn.broadcast %w dims = [2] : tensor<3xf32> -> tensor<6x3x3xf32>
  %1 = arith.mulf %0, %all : tensor<6x3x3xf32>
  %2 = nn.reduce sum %1 dims = [0, 1, 2] : tensor<6x3x3xf32> -> tensor<f32>
  return %2 : tensor<f32>
}
