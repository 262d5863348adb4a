// seed of the values: 4862287949429062112
// not compiled: in f64: no kernel can be generated: an empty concatenation is read
module {
  dist.mesh @m <["x"=4]>
  func.func @f(%arg0: tensor<1x1x2xf32>, %arg1: tensor<1x1x1xf32>) -> tensor<1x1x2xf32> {
    %values, %indices = nn.top_k %arg0 k = 2 : tensor<1x1x2xf32> -> tensor<1x1x2xf32>, tensor<1x1x2xi64>
    %0 = nn.pool_grad max %arg1, %values window = [3] strides = [2] dilations = [1] low = [1] high = [0] : tensor<1x1x1xf32>, tensor<1x1x2xf32> -> tensor<1x1x2xf32>
    return %0 : tensor<1x1x2xf32>
  }
}
