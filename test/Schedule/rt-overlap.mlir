// RUN: cleave-opt %s -rt-overlap -rt-verify-order | FileCheck %s
// RUN: cleave-opt %s -rt-overlap=limit=100 -rt-verify-order | FileCheck %s --check-prefix=TIGHT
// RUN: cleave-opt %s -rt-overlap=buffers=0 -rt-verify-order | FileCheck %s --check-prefix=TIGHT

// In the default cluster's cost model @k, which reads and writes 6.4 MB, takes
// 0.64 ms, and an all-gather of 3.2 MB 0.17 ms.
dist.mesh @mesh <["data"=2]>
func.func private @k(tensor<800000xf32>) -> tensor<800000xf32> attributes {nn.kernel}
func.func private @both(tensor<400000xf32>, tensor<800000xf32>) -> (tensor<800000xf32>, tensor<400000xf32>) attributes {nn.kernel}

// The second gather overlaps the first product, the gradient's reduce-scatter the
// next one. Without memory for the longer lifetime, the reduce-scatter is synchronous.
// CHECK-LABEL: func @ahead(
// CHECK-SAME:    %[[X:[^:]+]]: tensor<800000xf32>
// CHECK-SAME:    %[[W:[^:]+]]: tensor<400000xf32>
// CHECK-SAME:    rt.overlap = [
// CHECK:         %[[GO:.+]]:2 = rt.collective all_gather(%[[W]]) {{.*}} -> (tensor<800000xf32>, !rt.token)
// CHECK-NEXT:    %[[Y:.+]] = rt.launch @k(%[[X]])
// CHECK-NEXT:    %[[SUM:.+]]:2 = rt.collective reduce_scatter(%[[Y]]) {{.*}} -> (tensor<400000xf32>, !rt.token)
// CHECK-NEXT:    %[[HERE:.+]] = rt.wait %[[GO]]#1 values(%[[GO]]#0) sources(%[[W]])
// CHECK-NEXT:    %[[Z:.+]] = rt.launch @k(%[[HERE]])
// CHECK-NEXT:    %[[DONE:.+]] = rt.wait %[[SUM]]#1 values(%[[SUM]]#0) sources(%[[Y]])
// CHECK-NEXT:    rt.launch @k(%[[Z]])

// TIGHT-LABEL: func @ahead(
// TIGHT-NOT:     reduce_scatter{{.*}} !rt.token
// TIGHT:         return
func.func @ahead(%x: tensor<800000xf32> {nn.name = "x", nn.role = #nn.role<input>}, %w: tensor<400000xf32> {nn.name = "w", nn.role = #nn.role<parameter>})
    -> (tensor<800000xf32> {nn.name = "y", nn.role = #nn.role<output>}, tensor<400000xf32> {nn.name = "w", nn.role = #nn.role<gradient>}) {
  %0 = rt.launch @k(%x) extent = 800000 grain = 1 : (tensor<800000xf32>) -> tensor<800000xf32>
  %g = rt.collective reduce_scatter(%0) group = [0, 1, 2] layout = [1, 400000, 1, 0] purpose = "gradient"
    : (tensor<800000xf32>) -> tensor<400000xf32>
  %1 = rt.collective all_gather(%w) group = [0, 1, 2] layout = [1, 400000, 1, 0] purpose = "parameter"
    : (tensor<400000xf32>) -> tensor<800000xf32>
  %2 = rt.launch @k(%1) extent = 800000 grain = 1 : (tensor<800000xf32>) -> tensor<800000xf32>
  %3 = rt.launch @k(%2) extent = 800000 grain = 1 : (tensor<800000xf32>) -> tensor<800000xf32>
  return %3, %g : tensor<800000xf32>, tensor<400000xf32>
}

// Collectives under a condition are not started early; permutes of a ring stay where they are.
// CHECK-LABEL: func @stays(
// CHECK-NOT:     !rt.token
// CHECK:         return
func.func @stays(%x: tensor<800000xf32> {nn.name = "x", nn.role = #nn.role<input>}, %w: tensor<400000xf32> {nn.name = "w", nn.role = #nn.role<parameter>}, %f: tensor<1xi1> {nn.name = "f", nn.role = #nn.role<input>})
    -> (tensor<800000xf32> {nn.name = "y", nn.role = #nn.role<output>}, tensor<800000xf32> {nn.name = "z", nn.role = #nn.role<output>}) {
  rt.condition %f number = 1 : tensor<1xi1>
  %0 = rt.launch @k(%x) extent = 800000 grain = 1 : (tensor<800000xf32>) -> tensor<800000xf32>
  %1 = rt.collective all_gather(%w) group = [0, 1, 2] layout = [1, 400000, 1, 0] purpose = "parameter" {nn.when = 1 : i64}
    : (tensor<400000xf32>) -> tensor<800000xf32>
  %2 = rt.launch @k(%1) extent = 800000 grain = 1 : (tensor<800000xf32>) -> tensor<800000xf32>
  %3 = rt.collective permute(%0) group = [0, 1, 2] layout = [1, 800000, 1, 800000] purpose = "activation" {sources = array<i64: 1, 0>}
    : (tensor<800000xf32>) -> tensor<800000xf32>
  return %2, %3 : tensor<800000xf32>, tensor<800000xf32>
}

// The result of a reduce-scatter is gathered and also read: its wait precedes both readers.
// CHECK-LABEL: func @chain(
// CHECK-COUNT-1: rt.collective reduce_scatter
// CHECK:         rt.collective all_gather
// CHECK:         return
func.func @chain(%x: tensor<800000xf32> {nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<800000xf32> {nn.name = "y", nn.role = #nn.role<output>}, tensor<800000xf32> {nn.name = "z", nn.role = #nn.role<output>}, tensor<400000xf32> {nn.name = "s", nn.role = #nn.role<output>}) {
  %s = rt.collective reduce_scatter(%x) group = [0, 1, 2] layout = [1, 400000, 1, 0] purpose = "gradient"
    : (tensor<800000xf32>) -> tensor<400000xf32>
  %0 = rt.launch @k(%x) extent = 800000 grain = 1 : (tensor<800000xf32>) -> tensor<800000xf32>
  %g = rt.collective all_gather(%s) group = [0, 1, 2] layout = [1, 400000, 1, 0] purpose = "parameter"
    : (tensor<400000xf32>) -> tensor<800000xf32>
  %1:2 = rt.launch @both(%s, %g) extent = 400000 grain = 1 : (tensor<400000xf32>, tensor<800000xf32>) -> (tensor<800000xf32>, tensor<400000xf32>)
  return %0, %1#0, %1#1 : tensor<800000xf32>, tensor<800000xf32>, tensor<400000xf32>
}
