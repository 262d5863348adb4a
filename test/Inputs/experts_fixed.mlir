// A layer of 8 experts with fixed routing: choice j of the token at position i is
// expert (2 i + j) mod 8. The load is balanced, so bytes sent follow closed forms.
func.func @forward(
    %embed: tensor<19x6xf32> {nn.name = "embed", nn.role = #nn.role<parameter>},
    %gate: tensor<8x6x10xf32> {nn.name = "experts.gate", nn.role = #nn.role<parameter>},
    %up: tensor<8x6x10xf32> {nn.name = "experts.up", nn.role = #nn.role<parameter>},
    %down: tensor<8x10x6xf32> {nn.name = "experts.down", nn.role = #nn.role<parameter>},
    %head: tensor<6x19xf32> {nn.name = "head", nn.role = #nn.role<parameter>},
    %tokens: tensor<8x12xi64> {nn.name = "input_ids", nn.role = #nn.role<tokens>})
    -> (tensor<8x12x19xf32> {nn.name = "logits", nn.role = #nn.role<output>}) {
  %x = nn.gather %embed, %tokens dim = 0 : tensor<19x6xf32>, tensor<8x12xi64> -> tensor<8x12x6xf32>
  %position = nn.iota dim = 1 : tensor<8x12x2xi64>
  %slot = nn.iota dim = 2 : tensor<8x12x2xi64>
  %two = arith.constant dense<2> : tensor<8x12x2xi64>
  %eight = arith.constant dense<8> : tensor<8x12x2xi64>
  %first = arith.muli %position, %two : tensor<8x12x2xi64>
  %number = arith.addi %first, %slot : tensor<8x12x2xi64>
  %ids = arith.remsi %number, %eight : tensor<8x12x2xi64>
  %slots = nn.broadcast %x dims = [0, 1, 3] : tensor<8x12x6xf32> -> tensor<8x12x2x6xf32>
  %g = nn.grouped_dot %slots, %gate, %ids : tensor<8x12x2x6xf32>, tensor<8x6x10xf32>, tensor<8x12x2xi64> -> tensor<8x12x2x10xf32>
  %u = nn.grouped_dot %slots, %up, %ids : tensor<8x12x2x6xf32>, tensor<8x6x10xf32>, tensor<8x12x2xi64> -> tensor<8x12x2x10xf32>
  %open = nn.sigmoid %g : tensor<8x12x2x10xf32>
  %silu = arith.mulf %g, %open : tensor<8x12x2x10xf32>
  %inner = arith.mulf %silu, %u : tensor<8x12x2x10xf32>
  %y = nn.grouped_dot %inner, %down, %ids : tensor<8x12x2x10xf32>, tensor<8x10x6xf32>, tensor<8x12x2xi64> -> tensor<8x12x2x6xf32>
  %mixed = nn.reduce sum %y dims = [2] : tensor<8x12x2x6xf32> -> tensor<8x12x6xf32>
  %out = arith.addf %x, %mixed : tensor<8x12x6xf32>
  %logits = nn.einsum "bsh,hv->bsv" %out, %head : tensor<8x12x6xf32>, tensor<6x19xf32> -> tensor<8x12x19xf32>
  return %logits : tensor<8x12x19xf32>
}
