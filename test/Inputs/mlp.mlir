// A two-layer perceptron: 6 features, 10 hidden units, 5 classes, a batch of 8.
func.func @forward(%w1: tensor<6x10xf32> {nn.name = "w1", nn.role = #nn.role<parameter>},
                   %b1: tensor<10xf32> {nn.name = "b1", nn.role = #nn.role<parameter>},
                   %w2: tensor<10x5xf32> {nn.name = "w2", nn.role = #nn.role<parameter>},
                   %b2: tensor<5xf32> {nn.name = "b2", nn.role = #nn.role<parameter>},
                   %x: tensor<8x6xf32> {nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<8x5xf32> {nn.name = "logits", nn.role = #nn.role<output>}) {
  %0 = nn.einsum "bi,ih->bh" %x, %w1 : tensor<8x6xf32>, tensor<6x10xf32> -> tensor<8x10xf32>
  %1 = nn.broadcast %b1 dims = [1] : tensor<10xf32> -> tensor<8x10xf32>
  %2 = arith.addf %0, %1 : tensor<8x10xf32>
  %zero = arith.constant dense<0.0> : tensor<8x10xf32>
  %3 = arith.maximumf %2, %zero : tensor<8x10xf32>
  %4 = nn.einsum "bh,hc->bc" %3, %w2 : tensor<8x10xf32>, tensor<10x5xf32> -> tensor<8x5xf32>
  %5 = nn.broadcast %b2 dims = [1] : tensor<5xf32> -> tensor<8x5xf32>
  %6 = arith.addf %4, %5 : tensor<8x5xf32>
  return %6 : tensor<8x5xf32>
}
