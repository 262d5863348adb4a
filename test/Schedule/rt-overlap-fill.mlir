// RUN: cleave-opt %s -rt-overlap -rt-verify-order | FileCheck %s

// In the default cluster's cost model @k, which reads and writes 6.4 MB, takes
// 0.64 ms, and an all-reduce of 3.2 MB over two ranks 0.34 ms.
dist.mesh @mesh <["data"=2]>
func.func private @k(tensor<800000xf32>) -> tensor<800000xf32> attributes {nn.kernel}
func.func private @add(tensor<800000xf32>, tensor<800000xf32>) -> tensor<800000xf32> attributes {nn.kernel}

// Independent compute is moved into the window of an all-reduce.
// CHECK-LABEL: func @matrix_behind_input(
// CHECK-SAME:    %[[DY:[^:]+]]: tensor<800000xf32>
// CHECK:         %[[DX:.+]] = rt.launch @k(%[[DY]])
// CHECK-NEXT:    %[[GO:.+]]:2 = rt.collective all_reduce(%[[DX]])
// CHECK-NEXT:    %[[DW:.+]] = rt.launch @k(%[[DY]])
// CHECK-NEXT:    %[[SUM:.+]] = rt.wait %[[GO]]#1
// CHECK-NEXT:    %[[NEXT:.+]] = rt.launch @k(%[[SUM]])
// CHECK-NEXT:    return %[[NEXT]], %[[DW]]
func.func @matrix_behind_input(%dy: tensor<800000xf32> {nn.name = "dy", nn.role = #nn.role<input>})
    -> (tensor<800000xf32> {nn.name = "dx", nn.role = #nn.role<output>}, tensor<800000xf32> {nn.name = "w", nn.role = #nn.role<gradient>}) {
  %dw = rt.launch @k(%dy) extent = 800000 grain = 1 : (tensor<800000xf32>) -> tensor<800000xf32>
  %dx = rt.launch @k(%dy) extent = 800000 grain = 1 : (tensor<800000xf32>) -> tensor<800000xf32>
  %0 = rt.collective all_reduce(%dx) group = [0, 1, 2] layout = [1, 800000, 1, 800000] purpose = "activation"
    : (tensor<800000xf32>) -> tensor<800000xf32>
  %1 = rt.launch @k(%0) extent = 800000 grain = 1 : (tensor<800000xf32>) -> tensor<800000xf32>
  return %1, %dw : tensor<800000xf32>, tensor<800000xf32>
}

// An independent branch after the reader of the sum moves before the reader.
// CHECK-LABEL: func @branch(
// CHECK-SAME:    %[[X:[^:]+]]: tensor<800000xf32>
// CHECK:         %[[GO:.+]]:2 = rt.collective all_reduce
// CHECK-NEXT:    %[[OTHER:.+]] = rt.launch @k(%[[X]])
// CHECK-NEXT:    %[[SUM:.+]] = rt.wait %[[GO]]#1
// CHECK-NEXT:    %[[Y:.+]] = rt.launch @k(%[[SUM]])
// CHECK-NEXT:    return %[[Y]], %[[OTHER]]
func.func @branch(%x: tensor<800000xf32> {nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<800000xf32> {nn.name = "y", nn.role = #nn.role<output>}, tensor<800000xf32> {nn.name = "z", nn.role = #nn.role<output>}) {
  %a = rt.launch @k(%x) extent = 800000 grain = 1 : (tensor<800000xf32>) -> tensor<800000xf32>
  %0 = rt.collective all_reduce(%a) group = [0, 1, 2] layout = [1, 800000, 1, 800000] purpose = "activation"
    : (tensor<800000xf32>) -> tensor<800000xf32>
  %1 = rt.launch @k(%0) extent = 800000 grain = 1 : (tensor<800000xf32>) -> tensor<800000xf32>
  %2 = rt.launch @k(%x) extent = 800000 grain = 1 : (tensor<800000xf32>) -> tensor<800000xf32>
  return %1, %2 : tensor<800000xf32>, tensor<800000xf32>
}

// The new value of a parameter overwrites the parameter: it does not move before the
// readers of the old value, but independent compute after it does.
// CHECK-LABEL: func @overwritten(
// CHECK-SAME:    %[[X:[^:]+]]: tensor<800000xf32>
// CHECK-NOT:     rt.copy
// CHECK:         %[[GO:.+]]:2 = rt.collective all_reduce
// CHECK-NEXT:    %[[Z:.+]] = rt.launch @k(%[[X]])
// CHECK-NEXT:    rt.wait
// CHECK-NEXT:    rt.launch @k
// CHECK-NEXT:    %[[Y:.+]] = rt.launch @add
// CHECK-NEXT:    %[[NEW:.+]] = rt.launch @k(%[[X]])
// CHECK-NEXT:    return %[[Y]], %[[NEW]], %[[Z]]
// CHECK-LABEL: func @not_overwritten(
// CHECK:         rt.collective all_reduce{{.*}} !rt.token
// CHECK:         rt.wait
// CHECK-NEXT:    rt.launch @k
// CHECK-NEXT:    rt.launch @add
// CHECK-NEXT:    return
func.func @overwritten(%x: tensor<800000xf32> {nn.name = "x", nn.role = #nn.role<input>}, %w: tensor<800000xf32> {nn.name = "w", nn.role = #nn.role<parameter>})
    -> (tensor<800000xf32> {nn.name = "y", nn.role = #nn.role<output>}, tensor<800000xf32> {nn.name = "w", nn.role = #nn.role<parameter>}, tensor<800000xf32> {nn.name = "z", nn.role = #nn.role<output>}) {
  %a = rt.launch @k(%x) extent = 800000 grain = 1 : (tensor<800000xf32>) -> tensor<800000xf32>
  %0 = rt.collective all_reduce(%a) group = [0, 1, 2] layout = [1, 800000, 1, 800000] purpose = "activation"
    : (tensor<800000xf32>) -> tensor<800000xf32>
  %1 = rt.launch @k(%0) extent = 800000 grain = 1 : (tensor<800000xf32>) -> tensor<800000xf32>
  %2 = rt.launch @add(%1, %w) extent = 800000 grain = 1 : (tensor<800000xf32>, tensor<800000xf32>) -> tensor<800000xf32>
  %new = rt.launch @k(%x) extent = 800000 grain = 1 : (tensor<800000xf32>) -> tensor<800000xf32>
  %z = rt.launch @k(%x) extent = 800000 grain = 1 : (tensor<800000xf32>) -> tensor<800000xf32>
  return %2, %new, %z : tensor<800000xf32>, tensor<800000xf32>, tensor<800000xf32>
}
func.func @not_overwritten(%x: tensor<800000xf32> {nn.name = "x", nn.role = #nn.role<input>}, %w: tensor<800000xf32> {nn.name = "v", nn.role = #nn.role<parameter>})
    -> (tensor<800000xf32> {nn.name = "y", nn.role = #nn.role<output>}, tensor<800000xf32> {nn.name = "z", nn.role = #nn.role<output>}) {
  %a = rt.launch @k(%x) extent = 800000 grain = 1 : (tensor<800000xf32>) -> tensor<800000xf32>
  %0 = rt.collective all_reduce(%a) group = [0, 1, 2] layout = [1, 800000, 1, 800000] purpose = "activation"
    : (tensor<800000xf32>) -> tensor<800000xf32>
  %1 = rt.launch @k(%0) extent = 800000 grain = 1 : (tensor<800000xf32>) -> tensor<800000xf32>
  %2 = rt.launch @add(%1, %w) extent = 800000 grain = 1 : (tensor<800000xf32>, tensor<800000xf32>) -> tensor<800000xf32>
  %new = rt.launch @k(%x) extent = 800000 grain = 1 : (tensor<800000xf32>) -> tensor<800000xf32>
  return %2, %new : tensor<800000xf32>, tensor<800000xf32>
}

// Operations under a condition are marked by attributes: the condition stays, and its operands too.
// CHECK-LABEL: func @negative_condition(
// CHECK:         rt.launch @flag
// CHECK-NEXT:    rt.condition
// CHECK-NEXT:    rt.launch @k{{.*}}nn.when = 1
// CHECK-NEXT:    rt.launch @k
// CHECK-NEXT:    rt.collective all_reduce
func.func private @flag(tensor<800000xf32>) -> tensor<1xi1> attributes {nn.kernel}
func.func @negative_condition(%x: tensor<800000xf32> {nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<800000xf32> {nn.name = "y", nn.role = #nn.role<output>}, tensor<800000xf32> {nn.name = "z", nn.role = #nn.role<output>}) {
  %f = rt.launch @flag(%x) extent = 1 grain = 1 : (tensor<800000xf32>) -> tensor<1xi1>
  rt.condition %f number = 1 : tensor<1xi1>
  %c = rt.launch @k(%x) extent = 800000 grain = 1 {nn.when = 1 : i64} : (tensor<800000xf32>) -> tensor<800000xf32>
  %dx = rt.launch @k(%x) extent = 800000 grain = 1 : (tensor<800000xf32>) -> tensor<800000xf32>
  %0 = rt.collective all_reduce(%dx) group = [0, 1, 2] layout = [1, 800000, 1, 800000] purpose = "activation"
    : (tensor<800000xf32>) -> tensor<800000xf32>
  %1 = rt.launch @k(%0) extent = 800000 grain = 1 : (tensor<800000xf32>) -> tensor<800000xf32>
  return %1, %c : tensor<800000xf32>, tensor<800000xf32>
}
