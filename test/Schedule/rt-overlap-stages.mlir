// RUN: cleave-opt %s -rt-overlap | FileCheck %s

// Pipeline stages wait for each other even if nothing overlaps within them, so
// each stage records its modelled time: in the default cluster's cost model
// 6.4 MB of memory traffic take 0.64 ms.
dist.mesh @mesh <["pipeline"=2]>
func.func private @k(tensor<800000xf32>) -> tensor<800000xf32> attributes {nn.kernel}

// CHECK-LABEL: func @F.0(
// CHECK-SAME:    rt.overlap = [6.4{{0*}}e-04, 0.000000e+00, 0.000000e+00]
func.func @F.0(%x: tensor<800000xf32> {nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<800000xf32> {nn.name = "y", nn.role = #nn.role<output>}) attributes {pipe.stage = 0 : i64} {
  %0 = rt.launch @k(%x) extent = 800000 grain = 1 : (tensor<800000xf32>) -> tensor<800000xf32>
  return %0 : tensor<800000xf32>
}

// CHECK-LABEL: func @F.1(
// CHECK-SAME:    rt.overlap = [{{0.00128|1.28}}
func.func @F.1(%x: tensor<800000xf32> {nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<800000xf32> {nn.name = "y", nn.role = #nn.role<output>}) attributes {pipe.stage = 1 : i64} {
  %0 = rt.launch @k(%x) extent = 800000 grain = 1 : (tensor<800000xf32>) -> tensor<800000xf32>
  %1 = rt.launch @k(%0) extent = 800000 grain = 1 : (tensor<800000xf32>) -> tensor<800000xf32>
  return %1 : tensor<800000xf32>
}
