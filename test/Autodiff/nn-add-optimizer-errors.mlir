// RUN: cleave-opt %s -split-input-file -verify-diagnostics --nn-add-optimizer

// Norm, rate and loss are scalars of one type.
// expected-error @below {{parameter 's' is 'f64', but the loss 'f32': trained parameters have the type of the loss; store it as 'f32' and cast it in the model, or name it in train.frozen}}
func.func @loss_grad(%w: tensor<3xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                     %s: tensor<3xf64> {nn.name = "s", nn.role = #nn.role<parameter>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>},
        tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>},
        tensor<3xf32> {nn.name = "w", nn.role = #nn.role<gradient>},
        tensor<3xf64> {nn.name = "s", nn.role = #nn.role<gradient>}) {
  %one = arith.constant dense<1.0> : tensor<f32>
  return %one, %one, %w, %s : tensor<f32>, tensor<f32>, tensor<3xf32>, tensor<3xf64>
}

// -----

// expected-error @below {{@loss_grad has no results; expected the loss as the first one}}
func.func @loss_grad() { return }

// -----

// expected-error @below {{@loss_grad has a loss of type 'tensor<i64>'; expected a tensor of floating-point elements}}
func.func @loss_grad(%n: tensor<i64> {nn.name = "n", nn.role = #nn.role<input>}) -> (tensor<i64> {nn.name = "loss", nn.role = #nn.role<loss>}) {
  return %n : tensor<i64>
}

// -----

// expected-error @below {{@loss_grad has no parameter to train}}
func.func @loss_grad(%n: tensor<f32> {nn.name = "n", nn.role = #nn.role<input>}) -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}) {
  return %n : tensor<f32>
}
