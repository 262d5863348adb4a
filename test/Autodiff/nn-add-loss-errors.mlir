// RUN: cleave-opt %s -split-input-file -verify-diagnostics --nn-add-loss

// expected-error @below {{the loss could read several outputs; set train.logits to one of a, b}}
func.func @forward(%x: tensor<2x3xf32>)
    -> (tensor<2x3xf32> {nn.name = "a", nn.role = #nn.role<output>}, tensor<2x3xf32> {nn.name = "b", nn.role = #nn.role<output>}) {
  return %x, %x : tensor<2x3xf32>, tensor<2x3xf32>
}

// -----

// expected-error @below {{cross_entropy needs logits [..., classes] of floats, but the output is of type 'f32' and shape [3]; where it is to be near the labels, train.loss = "mse"}}
func.func @forward(%x: tensor<3xf32>) -> (tensor<3xf32> {nn.name = "a", nn.role = #nn.role<output>}) {
  return %x : tensor<3xf32>
}

// -----

// expected-error @below {{the loss needs labels of type 'i64' and shape [2], but the model has an input 'labels' of type 'i32' and shape [2]; rename this input, or if the model computes its loss from it, set train.loss = "output:NAME"}}
func.func @forward(%x: tensor<2x3xf32> {nn.name = "x", nn.role = #nn.role<input>},
                   %labels: tensor<2xi32> {nn.name = "labels", nn.role = #nn.role<labels>})
    -> (tensor<2x3xf32> {nn.name = "a", nn.role = #nn.role<output>}) {
  return %x : tensor<2x3xf32>
}
