// RUN: cleave-opt %s -split-input-file -verify-diagnostics --nn-differentiate

func.func @loss(%w: tensor<2x3x4xf32> {nn.name = "w", nn.role = #nn.role<parameter>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
  %scale = arith.constant dense<1.0> : tensor<4xf32>
  %rows = arith.constant dense<1.0> : tensor<2x3xf32>
  // expected-error @below {{'nn.rms_norm_grad' op has no derivative, but a parameter's gradient depends on it}}
  %0 = nn.rms_norm_grad %w, %w, %scale, %rows
    : (tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<4xf32>, tensor<2x3xf32>) -> tensor<2x3x4xf32>
  %1 = nn.reduce sum %0 dims = [0, 1, 2] : tensor<2x3x4xf32> -> tensor<f32>
  return %1, %1 : tensor<f32>, tensor<f32>
}

// -----

// expected-error @below {{has no parameter to train: it has none, or train.trainable and train.frozen leave none}}
func.func @loss(%x: tensor<f32> {nn.name = "x", nn.role = #nn.role<input>}) -> (tensor<f32>, tensor<f32>) {
  return %x, %x : tensor<f32>, tensor<f32>
}

// -----

module attributes {pipe.scalar = tensor<f32>, pipe.stage = 0 : i64, pipe.stages = 2 : i64} {
  // expected-error @below {{result 0 is pipe.differentiable and has no nn.name}}
  func.func @loss(%w: tensor<3xf32> {nn.name = "w", nn.role = #nn.role<parameter>})
      -> (tensor<3xf32> {nn.role = #nn.role<activation>, pipe.differentiable}) {
    return %w : tensor<3xf32>
  }
}
