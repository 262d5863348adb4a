// A layer of 5 experts with top-2 routing: a router with normalised weights,
// gated experts with one bias each, combine, residual. The sizes divide by few
// axes.
func.func @forward(
    %embed: tensor<17x6xf32> {nn.name = "embed", nn.role = #nn.role<parameter>},
    %router: tensor<6x5xf32> {nn.name = "router", nn.role = #nn.role<parameter>},
    %gate: tensor<5x6x8xf32> {nn.name = "experts.gate", nn.role = #nn.role<parameter>},
    %up: tensor<5x8x6xf32> {nn.name = "experts.up", nn.role = #nn.role<parameter>},
    %bias: tensor<5x8xf32> {nn.name = "experts.bias", nn.role = #nn.role<parameter>},
    %down: tensor<5x8x6xf32> {nn.name = "experts.down", nn.role = #nn.role<parameter>},
    %head: tensor<6x17xf32> {nn.name = "head", nn.role = #nn.role<parameter>},
    %tokens: tensor<4x7xi64> {nn.name = "input_ids", nn.role = #nn.role<tokens>})
    -> (tensor<4x7x17xf32> {nn.name = "logits", nn.role = #nn.role<output>}) {
  %x = nn.gather %embed, %tokens dim = 0 : tensor<17x6xf32>, tensor<4x7xi64> -> tensor<4x7x6xf32>
  %scores = nn.einsum "bsh,he->bse" %x, %router : tensor<4x7x6xf32>, tensor<6x5xf32> -> tensor<4x7x5xf32>
  %p = nn.softmax %scores : tensor<4x7x5xf32>
  %best, %ids = nn.top_k %p k = 2 : tensor<4x7x5xf32> -> tensor<4x7x2xf32>, tensor<4x7x2xi64>
  %sum = nn.reduce sum %best dims = [2] : tensor<4x7x2xf32> -> tensor<4x7xf32>
  %spread = nn.broadcast %sum dims = [0, 1] : tensor<4x7xf32> -> tensor<4x7x2xf32>
  %weights = arith.divf %best, %spread : tensor<4x7x2xf32>
  %slots = nn.broadcast %x dims = [0, 1, 3] : tensor<4x7x6xf32> -> tensor<4x7x2x6xf32>
  %g = nn.grouped_dot %slots, %gate, %ids : tensor<4x7x2x6xf32>, tensor<5x6x8xf32>, tensor<4x7x2xi64> -> tensor<4x7x2x8xf32>
  %u = nn.grouped_dot %slots, %up, %ids transposed : tensor<4x7x2x6xf32>, tensor<5x8x6xf32>, tensor<4x7x2xi64> -> tensor<4x7x2x8xf32>
  %b = nn.gather %bias, %ids dim = 0 : tensor<5x8xf32>, tensor<4x7x2xi64> -> tensor<4x7x2x8xf32>
  %gb = arith.addf %g, %b : tensor<4x7x2x8xf32>
  %open = nn.sigmoid %gb : tensor<4x7x2x8xf32>
  %silu = arith.mulf %gb, %open : tensor<4x7x2x8xf32>
  %inner = arith.mulf %silu, %u : tensor<4x7x2x8xf32>
  %y = nn.grouped_dot %inner, %down, %ids : tensor<4x7x2x8xf32>, tensor<5x8x6xf32>, tensor<4x7x2xi64> -> tensor<4x7x2x6xf32>
  %mixed = nn.einsum "bskh,bsk->bsh" %y, %weights : tensor<4x7x2x6xf32>, tensor<4x7x2xf32> -> tensor<4x7x6xf32>
  %out = arith.addf %x, %mixed : tensor<4x7x6xf32>
  %logits = nn.einsum "bsh,hv->bsv" %out, %head : tensor<4x7x6xf32>, tensor<6x17xf32> -> tensor<4x7x17xf32>
  return %logits : tensor<4x7x17xf32>
}
