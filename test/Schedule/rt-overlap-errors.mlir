// RUN: not cleave-opt %s -split-input-file -rt-overlap 2>&1 | FileCheck %s

dist.mesh @mesh <["data"=2]>
// CHECK: goes over part (1)2 of axis 7, which the mesh @mesh does not have
func.func @axis(%x: tensor<8xf32> {nn.name = "x", nn.role = #nn.role<input>}) -> (tensor<8xf32> {nn.name = "y", nn.role = #nn.role<output>}) {
  %0 = rt.collective all_reduce(%x) group = [7, 1, 2] layout = [1, 8, 1, 8] purpose = "gradient" : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

// CHECK: has 0 meshes; expected the one over which its collectives go
func.func @mesh(%x: tensor<8xf32> {nn.name = "x", nn.role = #nn.role<input>}) -> (tensor<8xf32> {nn.name = "y", nn.role = #nn.role<output>}) {
  %0 = rt.collective all_reduce(%x) group = [0, 1, 2] layout = [1, 8, 1, 8] purpose = "gradient" : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}
