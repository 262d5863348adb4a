// RUN: cleave-opt %s -split-input-file -dist-propagate "-dist-plan-ops=remarks=true" -verify-diagnostics

// Plans that were not weighed are reported once for each kind of operation.
dist.mesh @m <["a"=2, "b"=2, "c"=2, "d"=2, "e"=2, "f"=2]>
func.func @main(%x: tensor<2x2x2x2x2x2xf32> {dist.sharding = #dist.sharding<@m, [{"a"}, {"b"}, {"c"}, {"d"}, {"e"}, {"f"}]>},
                %y: tensor<2x2x2x2x2x2xf32> {dist.sharding = #dist.sharding<@m, [{"b"}, {"c"}, {"d"}, {"e"}, {"f"}, {"a"}]>})
    -> (tensor<2x2x2x2x2x2xf32>, tensor<2x2x2x2x2x2xf32>) {
  // expected-remark @below {{arith.addf has more than 512 ways to run on the axes of its tensors; the others, also of further such operations, were not weighed}}
  %0 = arith.addf %x, %y {dist.sharding = [#dist.sharding<@m, [{"c"}, {"d"}, {"e"}, {"f"}, {"a"}, {"b"}]>]} : tensor<2x2x2x2x2x2xf32>
  %1 = arith.addf %y, %x {dist.sharding = [#dist.sharding<@m, [{"c"}, {"d"}, {"e"}, {"f"}, {"a"}, {"b"}]>]} : tensor<2x2x2x2x2x2xf32>
  return %0, %1 : tensor<2x2x2x2x2x2xf32>, tensor<2x2x2x2x2x2xf32>
}

// -----

// A remark on a partial value says which factor makes it partial, and where it is reduced.
dist.mesh @m <["x"=2, "y"=2]>
func.func @main(%a: tensor<8x6xf32> {dist.sharding = #dist.sharding<@m, [{"x"}, {"y"}]>},
                %w: tensor<6x4xf32> {dist.sharding = #dist.sharding<@m, [{"y"}, {}]>},
                // expected-remark @below {{argument 2 of @main is partial over "y" (sum), as asked; it stays so until it is read: passed on by arith.addf}}
                %d: tensor<8x4xf32> {dist.sharding = #dist.sharding<@m, [{"x"}, {}], partial = sum{"y"}>})
    -> (tensor<8x4xf32> {dist.sharding = #dist.sharding<@m, [{"x"}, {}]>},
        tensor<8x4xf32> {dist.sharding = #dist.sharding<@m, [{"x"}, {"y"}]>},
        tensor<4xf32> {dist.sharding = #dist.sharding<@m, [{}], partial = sum{"x"}>}) {
  // expected-remark @below {{nn.einsum is partial over "y" (sum): "y" splits what it reduces, dimension 1 of operand 0 and dimension 0 of operand 1; it stays so until it is read: passed on by arith.addf}}
  %0 = nn.einsum "ab,bc->ac" %a, %w : tensor<8x6xf32>, tensor<6x4xf32> -> tensor<8x4xf32>
  // expected-remark @below {{arith.addf is partial over "y" (sum), from the result of nn.einsum and argument 2, to reduce their sum once; it stays so until it is read: all-reduced where it is read by math.exp and math.log}}
  %1 = arith.addf %0, %d : tensor<8x4xf32>
  %2 = math.exp %1 : tensor<8x4xf32>
  %3 = math.log %1 : tensor<8x4xf32>
  // expected-remark @below {{nn.einsum is partial over "y" (sum): "y" splits what it reduces, dimension 1 of operand 0 and dimension 0 of operand 1; reduce-scattered over "y" at once, as the requested sharding splits it}}
  %4 = nn.einsum "ab,bc->ac" %a, %w : tensor<8x6xf32>, tensor<6x4xf32> -> tensor<8x4xf32>
  // expected-remark @below {{nn.reduce is partial over "x" (sum): "x" splits what it reduces, dimension 0 of operand 0; it stays so until it is read: left so, as asked, by func.return}}
  %5 = nn.reduce sum %3 dims = [0] : tensor<8x4xf32> -> tensor<4xf32>
  return %2, %4, %5 : tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>
}

// -----

// A reduction of maxima, over two dimensions, inside a loop.
dist.mesh @m <["x"=2, "y"=2]>
func.func @main(%a: tensor<8x6xf32> {dist.sharding = #dist.sharding<@m, [{"x"}, {"y"}]>}, %s: tensor<f32>) -> tensor<f32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %r = scf.for %k = %c0 to %c3 step %c1 iter_args(%t = %s) -> (tensor<f32>) {
    // expected-remark @below {{nn.reduce is partial over "x", "y" (max): "x" splits what it reduces, dimension 0 of operand 0; "y" splits what it reduces, dimension 1 of operand 0; it stays so until it is read: all-reduced where it is read by arith.mulf}}
    %0 = nn.reduce max %a dims = [0, 1] : tensor<8x6xf32> -> tensor<f32>
    %1 = arith.mulf %0, %t : tensor<f32>
    scf.yield %1 : tensor<f32>
  }
  return %r : tensor<f32>
}
