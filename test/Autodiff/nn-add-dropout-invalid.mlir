// RUN: cleave-opt %s "--nn-add-dropout=p=0.1" -split-input-file -verify-diagnostics

// A merged dimension has the samples innermost, so the row of a sample depends on the batch size.
func.func @loss(%w: tensor<4x4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                %x: tensor<2x3x4xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
  %t = nn.transpose %x [1, 0, 2] : tensor<2x3x4xf32> -> tensor<3x2x4xf32>
  %f = nn.reshape %t : tensor<3x2x4xf32> -> tensor<6x4xf32>
  // expected-error @below {{which are whose is not known here}}
  %b = nn.einsum "rd,de->re" %f, %w : tensor<6x4xf32>, tensor<4x4xf32> -> tensor<6x4xf32>
  %x1 = arith.addf %f, %b : tensor<6x4xf32>
  %y = nn.einsum "rd,de->re" %x1, %w : tensor<6x4xf32>, tensor<4x4xf32> -> tensor<6x4xf32>
  %sum = nn.reduce sum %y dims = [0, 1] : tensor<6x4xf32> -> tensor<f32>
  %n = arith.constant dense<1.0> : tensor<f32>
  return %sum, %n : tensor<f32>, tensor<f32>
}

// -----

// The output head is not a residual branch.
// expected-error @below {{no place for dropout was found: nothing that a weight computes from a stream joins it again}}
func.func @loss(%w: tensor<4x4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                %x: tensor<2x4xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
  %b = nn.einsum "bd,de->be" %x, %w : tensor<2x4xf32>, tensor<4x4xf32> -> tensor<2x4xf32>
  %y = arith.addf %x, %b : tensor<2x4xf32>
  %sum = nn.reduce sum %y dims = [0, 1] : tensor<2x4xf32> -> tensor<f32>
  %n = arith.constant dense<1.0> : tensor<f32>
  return %sum, %n : tensor<f32>, tensor<f32>
}
