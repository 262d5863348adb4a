// RUN: cleave-opt %s --strategy-tensor -verify-diagnostics > /dev/null

// A share of padding that would be rounded to 0 % is "under 1 %".
dist.mesh @mesh <["tensor"=2]>
// expected-remark @below {{a dimension of 257 over 2 ranks (parameter 'up') is padded to 258: under 1 % of it is wasted}}
func.func @loss_grad(%up: tensor<6x257xf32> {nn.name = "up", nn.role = #nn.role<parameter>},
                     %down: tensor<257x6xf32> {nn.name = "down", nn.role = #nn.role<parameter>},
                     %x: tensor<8x6xf32> {nn.name = "x", nn.role = #nn.role<input>}) -> tensor<8x6xf32> {
  %0 = nn.einsum "bi,ih->bh" %x, %up : tensor<8x6xf32>, tensor<6x257xf32> -> tensor<8x257xf32>
  %1 = nn.einsum "bh,ho->bo" %0, %down : tensor<8x257xf32>, tensor<257x6xf32> -> tensor<8x6xf32>
  return %1 : tensor<8x6xf32>
}
