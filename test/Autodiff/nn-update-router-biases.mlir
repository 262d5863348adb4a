// RUN: cleave-opt %s "--nn-update-router-biases=rate=0.5" -split-input-file | FileCheck %s
// RUN: cleave-opt %s --nn-update-router-biases -split-input-file | FileCheck %s --check-prefix=OFF

// Loads are compared as integers; a skipped step leaves the bias unchanged.
// CHECK-LABEL: func @update(
// CHECK-SAME:    %[[F:.+]]: tensor<f32> {nn.name = "f"
// CHECK-SAME:    %[[B:.+]]: tensor<4xf32> {nn.data = #nn.data<file = "w", offset = 0, length = 16, dtype = "f32">, nn.name = "b", nn.role = #nn.role<buffer>}
// CHECK-SAME:    %[[N:.+]]: tensor<4xi64> {nn.name = "gate.chosen", nn.role = #nn.role<accumulator>
// CHECK-SAME:    -> (tensor<f32> {nn.name = "finite", nn.role = #nn.role<metric>}, tensor<4xf32> {nn.data = #nn.data<file = "w", offset = 0, length = 16, dtype = "f32">, nn.name = "b", nn.role = #nn.role<buffer>})
// CHECK:         %[[ALL:.+]] = nn.reduce sum %[[N]] dims = [0]
// CHECK:         %[[SLOTS:.+]] = nn.broadcast %[[ALL]] dims = []
// CHECK:         %[[FOUR:.+]] = arith.constant dense<4> : tensor<4xi64>
// CHECK:         %[[SCALED:.+]] = arith.muli %[[N]], %[[FOUR]]
// CHECK-DAG:     %[[ABOVE:.+]] = arith.cmpi sgt, %[[SCALED]], %[[SLOTS]]
// CHECK-DAG:     %[[MINUS:.+]] = arith.constant dense<-5.000000e-01>
// CHECK:         %[[DOWN:.+]] = arith.select %[[ABOVE]], %[[MINUS]], %{{.+}}
// CHECK-DAG:     %[[BELOW:.+]] = arith.cmpi slt, %[[SCALED]], %[[SLOTS]]
// CHECK-DAG:     %[[PLUS:.+]] = arith.constant dense<5.000000e-01>
// CHECK:         %[[STEP:.+]] = arith.select %[[BELOW]], %[[PLUS]], %[[DOWN]]
// CHECK:         %[[MOVED:.+]] = arith.addf %[[B]], %[[STEP]]
// CHECK:         arith.cmpf ogt, %[[F]]
// CHECK:         %[[NEW:.+]] = arith.select %{{.+}}, %[[MOVED]], %[[B]]
// CHECK:         return %[[F]], %[[NEW]]
// OFF-LABEL:   func @update(
// OFF-NOT:       nn.reduce
func.func @loss_grad(%b: tensor<4xf32> {nn.name = "b", nn.role = #nn.role<buffer>, nn.data = #nn.data<file = "w", offset = 0, length = 16, dtype = "f32">}, %ids: tensor<4xi64> {nn.name = "ids", nn.role = #nn.role<input>})
    -> (tensor<4xi64> {nn.name = "gate.chosen", nn.role = #nn.role<accumulator>, nn.router = #nn.router<name = "gate", counts = chosen, bias = "b">},
        tensor<4xi64> {nn.name = "other.chosen", nn.role = #nn.role<accumulator>, nn.router = #nn.router<name = "other", counts = chosen>}) {
  return %ids, %ids : tensor<4xi64>, tensor<4xi64>
}
func.func @update(%f: tensor<f32> {nn.name = "f", nn.role = #nn.role<loss>}) -> (tensor<f32> {nn.name = "finite", nn.role = #nn.role<metric>}) {
  return %f : tensor<f32>
}
