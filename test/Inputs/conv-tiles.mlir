// Convolutions of images split along both dimensions (halo exchange): strides, dilations, groups, and both gradients.
dist.mesh @m <["x"=2, "y"=2]>
func.func @main(%a: tensor<2x3x9x10xf32> {dist.sharding = #dist.sharding<@m, [{}, {}, {"x"}, {"y"}]>},
                %w: tensor<4x3x3x3xf32>, %v: tensor<4x1x5x3xf32>)
    -> (tensor<2x4x5x10xf32> {dist.sharding = #dist.sharding<@m, [{}, {}, {"x"}, {"y"}]>},
        tensor<2x3x9x10xf32> {dist.sharding = #dist.sharding<@m, [{}, {}, {"x"}, {"y"}]>},
        tensor<4x3x3x3xf32>) {
  %0 = nn.conv %a, %w strides = [1, 1] dilations = [1, 1] low = [1, 1] high = [1, 1] groups = 1
      : tensor<2x3x9x10xf32>, tensor<4x3x3x3xf32> -> tensor<2x4x9x10xf32>
  %1 = nn.conv %0, %v strides = [2, 1] dilations = [1, 2] low = [2, 2] high = [2, 2] groups = 4
      : tensor<2x4x9x10xf32>, tensor<4x1x5x3xf32> -> tensor<2x4x5x10xf32>
  %2 = nn.conv_input_grad %0, %w strides = [1, 1] dilations = [1, 1] low = [1, 1] high = [1, 1] groups = 1
      : tensor<2x4x9x10xf32>, tensor<4x3x3x3xf32> -> tensor<2x3x9x10xf32>
  %3 = nn.conv_filter_grad %0, %a strides = [1, 1] dilations = [1, 1] low = [1, 1] high = [1, 1] groups = 1
      : tensor<2x4x9x10xf32>, tensor<2x3x9x10xf32> -> tensor<4x3x3x3xf32>
  return %1, %2, %3 : tensor<2x4x5x10xf32>, tensor<2x3x9x10xf32>, tensor<4x3x3x3xf32>
}
