// RUN: cleave-opt %s -split-input-file -verify-diagnostics -pipe-cut-stages

// expected-error @below {{has no function @loss or @forward whose operations have stages; pipe-mark-stages comes first}}
module {
  func.func @loss(%x: tensor<f32>) -> tensor<f32> {
    return %x : tensor<f32>
  }
}

// -----

module attributes {pipe.stages = 2 : i64} {
  func.func @loss(%w: tensor<4x4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                  %x: tensor<2x4xf32> {nn.name = "x", nn.role = #nn.role<input>})
      -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
    %0 = nn.einsum "bi,io->bo" %x, %w {pipe.stage = 1 : i64} : tensor<2x4xf32>, tensor<4x4xf32> -> tensor<2x4xf32>
    // expected-error @below {{has stage 0, but reads a value of stage 1}}
    %1 = nn.einsum "bi,io->bo" %0, %w {pipe.stage = 0 : i64} : tensor<2x4xf32>, tensor<4x4xf32> -> tensor<2x4xf32>
    %2 = nn.reduce sum %1 dims = [0, 1] {pipe.stage = 1 : i64} : tensor<2x4xf32> -> tensor<f32>
    %one = arith.constant dense<1.0> : tensor<f32>
    return %2, %one : tensor<f32>, tensor<f32>
  }
}

// -----

module attributes {pipe.stages = 2 : i64} {
  func.func @loss(%w: tensor<4x4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                  %x: tensor<2x4xf32> {nn.name = "x", nn.role = #nn.role<input>})
      -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
    %0 = nn.einsum "bi,io->bo" %x, %w {pipe.stage = 0 : i64} : tensor<2x4xf32>, tensor<4x4xf32> -> tensor<2x4xf32>
    // expected-error @below {{has no stage, but reads a value of stage 0}}
    %1 = nn.einsum "bi,io->bo" %0, %w : tensor<2x4xf32>, tensor<4x4xf32> -> tensor<2x4xf32>
    %2 = nn.reduce sum %1 dims = [0, 1] {pipe.stage = 1 : i64} : tensor<2x4xf32> -> tensor<f32>
    %one = arith.constant dense<1.0> : tensor<f32>
    return %2, %one : tensor<f32>, tensor<f32>
  }
}

// -----

module attributes {pipe.stages = 2 : i64} {
  func.func @loss(%w: tensor<4x4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                  %x: tensor<2x4xf32> {nn.name = "x", nn.role = #nn.role<input>})
      -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
    %1 = nn.einsum "bi,io->bo" %x, %w {pipe.stage = 1 : i64} : tensor<2x4xf32>, tensor<4x4xf32> -> tensor<2x4xf32>
    // expected-error @below {{has stage 2, but there are 2}}
    %2 = nn.reduce sum %1 dims = [0, 1] {pipe.stage = 2 : i64} : tensor<2x4xf32> -> tensor<f32>
    %one = arith.constant dense<1.0> : tensor<f32>
    return %2, %one : tensor<f32>, tensor<f32>
  }
}

// -----

module attributes {pipe.stages = 1 : i64} {
  // expected-error @below {{returns an update of buffer 'mean', which cannot be cut into stages: updates of buffers are not yet supported in a pipeline}}
  func.func @loss(%mean: tensor<f32> {nn.name = "mean", nn.role = #nn.role<buffer>})
      -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>},
          tensor<f32> {nn.name = "mean", nn.role = #nn.role<buffer>}) {
    %one = arith.constant dense<1.0> : tensor<f32>
    %next = arith.addf %mean, %one : tensor<f32>
    return %one, %one, %next : tensor<f32>, tensor<f32>, tensor<f32>
  }
}
