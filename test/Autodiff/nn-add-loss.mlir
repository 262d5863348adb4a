// RUN: cleave-opt %s -split-input-file --nn-add-loss | FileCheck %s
// RUN: cleave-opt %s -split-input-file "--nn-add-loss=frozen=w.*" | FileCheck %s --check-prefix=FROZEN

// The weight counts rows of logits whose label is not ignored; @forward stays.
// CHECK-LABEL: func @forward
// CHECK-LABEL: func @loss
// CHECK-SAME:    nn.role = #nn.role<parameter>
// CHECK-SAME:    %[[LABELS:[a-z0-9]+]]: tensor<2x5xi64> {nn.name = "labels", nn.role = #nn.role<labels>}
// CHECK-SAME:    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>})
// CHECK:         %[[LOGITS:.+]] = nn.einsum
// CHECK:         %[[LOSS:.+]], %{{.+}} = nn.cross_entropy %[[LOGITS]], %[[LABELS]] ignore_index = -100
// CHECK-DAG:     %[[SUM:.+]] = nn.reduce sum %[[LOSS]] dims = [0, 1]
// CHECK-DAG:     %[[COUNTED:.+]] = arith.cmpi ne, %[[LABELS]]
// CHECK:         %[[WEIGHT:.+]] = nn.reduce sum
// CHECK:         return %[[SUM]], %[[WEIGHT]]

// FROZEN-LABEL: func @loss
// FROZEN-SAME:    {nn.frozen, nn.name = "w", nn.role = #nn.role<constant>}
func.func @forward(%w: tensor<3x7xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                   %x: tensor<2x5x3xf32> {nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<2x5x7xf32> {nn.name = "logits", nn.role = #nn.role<output>}) {
  %0 = nn.einsum "bsh,hv->bsv" %x, %w : tensor<2x5x3xf32>, tensor<3x7xf32> -> tensor<2x5x7xf32>
  return %0 : tensor<2x5x7xf32>
}
