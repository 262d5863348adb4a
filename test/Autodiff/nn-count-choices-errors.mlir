// RUN: cleave-opt %s "--nn-count-choices=update-biases" -split-input-file -verify-diagnostics

// expected-error @below {{has no experts that a router chooses, but parallel.expert.bias_update is not 0}}
func.func @loss(%x: tensor<f32> {nn.name = "x", nn.role = #nn.role<parameter>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
  return %x, %x : tensor<f32>, tensor<f32>
}

// -----

// The combine weights include the bias as well.
// expected-error @below {{has no bias that enters nothing but the choice of router 'gate', but parallel.expert.bias_update is not 0; expected experts chosen by the largest of scores + bias, with one trained number for each expert, and weighed by scores without it}}
func.func @loss(%w: tensor<5x4xf32> {nn.name = "gate.weight", nn.role = #nn.role<parameter>},
                %bias: tensor<4xf32> {nn.name = "bias", nn.role = #nn.role<parameter>},
                %e: tensor<4x5x7xf32> {nn.name = "e", nn.role = #nn.role<parameter>}, %x: tensor<3x5xf32> {nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
  %0 = nn.einsum "bc,cd->bd" %x, %w : tensor<3x5xf32>, tensor<5x4xf32> -> tensor<3x4xf32>
  %1 = nn.sigmoid %0 : tensor<3x4xf32>
  %2 = nn.broadcast %bias dims = [1] : tensor<4xf32> -> tensor<3x4xf32>
  %3 = arith.addf %1, %2 : tensor<3x4xf32>
  %p, %ids = nn.top_k %3 k = 1 : tensor<3x4xf32> -> tensor<3x1xf32>, tensor<3x1xi64>
  %4 = nn.reshape %x : tensor<3x5xf32> -> tensor<3x1x5xf32>
  %5 = nn.grouped_dot %4, %e, %ids : tensor<3x1x5xf32>, tensor<4x5x7xf32>, tensor<3x1xi64> -> tensor<3x1x7xf32>
  %6 = nn.einsum "bsh,bs->bh" %5, %p : tensor<3x1x7xf32>, tensor<3x1xf32> -> tensor<3x7xf32>
  %7 = nn.reduce sum %6 dims = [0, 1] : tensor<3x7xf32> -> tensor<f32>
  return %7, %7 : tensor<f32>, tensor<f32>
}

// -----

// The bias is added before the scores (the softmax), not after them.
// expected-error @below {{has no bias that enters nothing but the choice of router 'gate'}}
func.func @loss(%w: tensor<5x4xf32> {nn.name = "gate.weight", nn.role = #nn.role<parameter>},
                %bias: tensor<4xf32> {nn.name = "bias", nn.role = #nn.role<parameter>},
                %e: tensor<4x5x7xf32> {nn.name = "e", nn.role = #nn.role<parameter>}, %x: tensor<3x5xf32> {nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
  %0 = nn.einsum "bc,cd->bd" %x, %w : tensor<3x5xf32>, tensor<5x4xf32> -> tensor<3x4xf32>
  %1 = nn.broadcast %bias dims = [1] : tensor<4xf32> -> tensor<3x4xf32>
  %2 = arith.addf %0, %1 : tensor<3x4xf32>
  %3 = nn.softmax %2 : tensor<3x4xf32>
  %id = nn.argmax %3 dim = 1 : tensor<3x4xf32> -> tensor<3xi64>
  %4 = nn.grouped_dot %x, %e, %id : tensor<3x5xf32>, tensor<4x5x7xf32>, tensor<3xi64> -> tensor<3x7xf32>
  %5 = nn.reduce sum %4 dims = [0, 1] : tensor<3x7xf32> -> tensor<f32>
  return %5, %5 : tensor<f32>, tensor<f32>
}

// -----

// expected-error @below {{router 'gate' has the bias 'bias', which is frozen (train.trainable, train.frozen), but parallel.expert.bias_update is not 0}}
func.func @loss(%w: tensor<5x4xf32> {nn.name = "gate.weight", nn.role = #nn.role<parameter>},
                %bias: tensor<4xf32> {nn.name = "bias", nn.role = #nn.role<constant>},
                %e: tensor<4x5x7xf32> {nn.name = "e", nn.role = #nn.role<parameter>}, %x: tensor<3x5xf32> {nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
  %0 = nn.einsum "bc,cd->bd" %x, %w : tensor<3x5xf32>, tensor<5x4xf32> -> tensor<3x4xf32>
  %1 = nn.sigmoid %0 : tensor<3x4xf32>
  %2 = nn.broadcast %bias dims = [1] : tensor<4xf32> -> tensor<3x4xf32>
  %3 = arith.addf %1, %2 : tensor<3x4xf32>
  %id = nn.argmax %3 dim = 1 : tensor<3x4xf32> -> tensor<3xi64>
  %4 = nn.grouped_dot %x, %e, %id : tensor<3x5xf32>, tensor<4x5x7xf32>, tensor<3xi64> -> tensor<3x7xf32>
  %5 = nn.reduce sum %4 dims = [0, 1] : tensor<3x7xf32> -> tensor<f32>
  return %5, %5 : tensor<f32>, tensor<f32>
}

// -----

// expected-error @below {{routers 'gate' and 'gate.2' share the bias 'bias' (equal tensors are stored once by exporters): parallel.expert.bias_update needs one for each router}}
func.func @loss(%w: tensor<5x4xf32> {nn.name = "gate.weight", nn.role = #nn.role<parameter>},
                %bias: tensor<4xf32> {nn.name = "bias", nn.role = #nn.role<parameter>},
                %e: tensor<4x5x7xf32> {nn.name = "e", nn.role = #nn.role<parameter>}, %x: tensor<3x5xf32> {nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
  %0 = nn.einsum "bc,cd->bd" %x, %w : tensor<3x5xf32>, tensor<5x4xf32> -> tensor<3x4xf32>
  %1 = nn.sigmoid %0 : tensor<3x4xf32>
  %2 = nn.broadcast %bias dims = [1] : tensor<4xf32> -> tensor<3x4xf32>
  %3 = arith.addf %1, %2 : tensor<3x4xf32>
  %id = nn.argmax %3 dim = 1 : tensor<3x4xf32> -> tensor<3xi64>
  %4 = nn.grouped_dot %x, %e, %id : tensor<3x5xf32>, tensor<4x5x7xf32>, tensor<3xi64> -> tensor<3x7xf32>
  %5 = arith.mulf %3, %3 : tensor<3x4xf32>
  %id2 = nn.argmax %5 dim = 1 : tensor<3x4xf32> -> tensor<3xi64>
  %6 = nn.grouped_dot %x, %e, %id2 : tensor<3x5xf32>, tensor<4x5x7xf32>, tensor<3xi64> -> tensor<3x7xf32>
  %7 = arith.addf %4, %6 : tensor<3x7xf32>
  %8 = nn.reduce sum %7 dims = [0, 1] : tensor<3x7xf32> -> tensor<f32>
  return %8, %8 : tensor<f32>, tensor<f32>
}
