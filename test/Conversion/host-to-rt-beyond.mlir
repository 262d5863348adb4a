// RUN: cleave-opt --nn-host-to-rt %s | FileCheck %s

// One row is cut into tiles of one row for two ranks: the second rank reads (and
// masks) a row past the end, also inside a kernel.

dist.mesh @m <["d"=2]>
dist.mesh @mn <["d"=2, "e"=2]>
func.func private @k(%x: tensor<1x4xf32>, %y: tensor<1x4xf32>) -> tensor<1x4xf32>
    attributes {nn.kernel, nn.extent = 1 : i64, nn.grain = 1 : i64} {
  %0 = dist.slice %x dim 0 over @m {"d"} : tensor<1x4xf32> -> tensor<1x4xf32>
  %1 = arith.addf %0, %y : tensor<1x4xf32>
  return %1 : tensor<1x4xf32>
}
// CHECK-LABEL: func.func @f
func.func @f(%x: tensor<1x4xf32> {nn.name = "x", nn.role = #nn.role<input>},
             %y: tensor<1x4xf32> {nn.name = "y", nn.role = #nn.role<input>})
    -> (tensor<1x4xf32> {nn.name = "z", nn.role = #nn.role<output>}) {
  // CHECK: rt.launch @k{{.*}}rt.beyond = array<i64: 4, 0>
  %0 = func.call @k(%x, %y) : (tensor<1x4xf32>, tensor<1x4xf32>) -> tensor<1x4xf32>
  return %0 : tensor<1x4xf32>
}

// A tile of a tile: the two overruns past the end add up.
func.func private @twice(%x: tensor<5x5xf32>, %y: tensor<3x3xf32>) -> tensor<3x3xf32>
    attributes {nn.kernel, nn.extent = 1 : i64, nn.grain = 1 : i64} {
  %0 = dist.slice %x dim 0 over @mn {"d"} : tensor<5x5xf32> -> tensor<3x5xf32>
  %1 = dist.slice %0 dim 1 over @mn {"e"} : tensor<3x5xf32> -> tensor<3x3xf32>
  %2 = arith.addf %1, %y : tensor<3x3xf32>
  return %2 : tensor<3x3xf32>
}
// CHECK-LABEL: func.func @g
func.func @g(%x: tensor<5x5xf32> {nn.name = "x", nn.role = #nn.role<input>},
             %y: tensor<3x3xf32> {nn.name = "y", nn.role = #nn.role<input>})
    -> (tensor<3x3xf32> {nn.name = "z", nn.role = #nn.role<output>}) {
  // CHECK: rt.launch @twice{{.*}}rt.beyond = array<i64: 10, 0>
  %0 = func.call @twice(%x, %y) : (tensor<5x5xf32>, tensor<3x3xf32>) -> tensor<3x3xf32>
  return %0 : tensor<3x3xf32>
}
