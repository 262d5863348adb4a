// A classifier that is trained on the log-sum-exp of its logits, over 10 classes.
func.func @forward(%w: tensor<6x10xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                   %x: tensor<8x6xf32> {nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<8xf32> {nn.name = "energy", nn.role = #nn.role<output>}) {
  %0 = nn.einsum "bi,ic->bc" %x, %w : tensor<8x6xf32>, tensor<6x10xf32> -> tensor<8x10xf32>
  %1 = nn.log_sum_exp %0 : tensor<8x10xf32>
  return %1 : tensor<8xf32>
}
