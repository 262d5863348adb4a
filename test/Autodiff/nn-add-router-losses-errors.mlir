// RUN: cleave-opt %s "--nn-add-router-losses=balance=0.5" -split-input-file -verify-diagnostics

// expected-error @below {{has no experts that a router chooses, but parallel.expert.aux_loss is not 0}}
func.func @loss(%x: tensor<f32> {nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
  return %x, %x : tensor<f32>, tensor<f32>
}

// -----

func.func @loss(%e: tensor<4x5x7xf32> {nn.name = "e", nn.role = #nn.role<parameter>}, %x: tensor<2x3x5xf32> {nn.name = "x", nn.role = #nn.role<input>},
                %ids: tensor<2x3xi64> {nn.name = "ids", nn.role = #nn.role<input>},
                %labels: tensor<2x3xi64> {nn.name = "labels", nn.role = #nn.role<labels>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
  // expected-error @below {{the scores by which its experts are chosen are neither logits nor a softmax or sigmoid of them; losses of routers need that}}
  %0 = nn.grouped_dot %x, %e, %ids : tensor<2x3x5xf32>, tensor<4x5x7xf32>, tensor<2x3xi64> -> tensor<2x3x7xf32>
  %1 = nn.reduce sum %0 dims = [0, 1, 2] : tensor<2x3x7xf32> -> tensor<f32>
  return %1, %1 : tensor<f32>, tensor<f32>
}

// -----

// The experts are in an encoder, whose tokens the labels do not cover.
func.func @loss(%w: tensor<5x4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                %e: tensor<4x5x7xf32> {nn.name = "e", nn.role = #nn.role<parameter>}, %x: tensor<2x3x5xf32> {nn.name = "x", nn.role = #nn.role<input>},
                %labels: tensor<2x9xi64> {nn.name = "labels", nn.role = #nn.role<labels>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
  // expected-error @below {{routes tokens [2, 3], but labels are [2, 9]: losses of routers weigh a sample by its labels}}
  %0 = nn.einsum "abc,cd->abd" %x, %w : tensor<2x3x5xf32>, tensor<5x4xf32> -> tensor<2x3x4xf32>
  %id = nn.argmax %0 dim = 2 : tensor<2x3x4xf32> -> tensor<2x3xi64>
  %1 = nn.grouped_dot %x, %e, %id : tensor<2x3x5xf32>, tensor<4x5x7xf32>, tensor<2x3xi64> -> tensor<2x3x7xf32>
  %2 = nn.reduce sum %1 dims = [0, 1, 2] : tensor<2x3x7xf32> -> tensor<f32>
  return %2, %2 : tensor<f32>, tensor<f32>
}

// -----

// expected-error @below {{has no labels of classes: parallel.expert.aux_loss and z_loss need train.loss = "cross_entropy"}}
func.func @loss(%w: tensor<5x4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                %e: tensor<4x5x7xf32> {nn.name = "e", nn.role = #nn.role<parameter>}, %x: tensor<2x3x5xf32> {nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
  %0 = nn.einsum "abc,cd->abd" %x, %w : tensor<2x3x5xf32>, tensor<5x4xf32> -> tensor<2x3x4xf32>
  %id = nn.argmax %0 dim = 2 : tensor<2x3x4xf32> -> tensor<2x3xi64>
  %1 = nn.grouped_dot %x, %e, %id : tensor<2x3x5xf32>, tensor<4x5x7xf32>, tensor<2x3xi64> -> tensor<2x3x7xf32>
  %2 = nn.reduce sum %1 dims = [0, 1, 2] : tensor<2x3x7xf32> -> tensor<f32>
  return %2, %2 : tensor<f32>, tensor<f32>
}
