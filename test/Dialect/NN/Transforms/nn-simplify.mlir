// RUN: cleave-opt %s -nn-simplify | FileCheck %s
// RUN: cleave-opt %s -nn-simplify=parameter-views | FileCheck %s --check-prefix=VIEW

// Without the option, parameters keep their shape.
// CHECK-LABEL: func @views
// CHECK-SAME:    %{{.+}}: tensor<6x12xf32> {nn.name = "w", nn.role = #nn.role<parameter>}
// CHECK:         nn.reshape
// VIEW-LABEL: func @views
// VIEW-SAME:    %[[X:.+]]: tensor<2x5x6xf32> {{.*}} %[[W:.+]]: tensor<6x3x4xf32>
// VIEW-SAME:    nn.view = #nn.view<shape = [6, 12], view = [6, 3, 4]>
// VIEW-NEXT:    %[[Y:.+]] = nn.einsum "abc,cde->adbe" %[[X]], %[[W]]
// VIEW-NEXT:    return %[[Y]]
func.func @views(%x: tensor<2x5x6xf32> {nn.name = "x", nn.role = #nn.role<input>},
                 %w: tensor<6x12xf32> {nn.name = "w", nn.role = #nn.role<parameter>}) -> tensor<2x3x5x4xf32> {
  %0 = nn.reshape %w : tensor<6x12xf32> -> tensor<6x3x4xf32>
  %1 = nn.einsum "abc,cde->abde" %x, %0 : tensor<2x5x6xf32>, tensor<6x3x4xf32> -> tensor<2x5x3x4xf32>
  %2 = nn.transpose %1 [0, 2, 1, 3] : tensor<2x5x3x4xf32> -> tensor<2x3x5x4xf32>
  return %2 : tensor<2x3x5x4xf32>
}

// Two uses split a parameter differently: one split becomes the parameter's view,
// the other a reshape in the body.
// VIEW-LABEL: func @conflict
// VIEW-SAME:    nn.view = #nn.view<shape = [12], view = [3, 4]>
// VIEW:         nn.reshape %{{.+}} : tensor<3x4xf32> -> tensor<2x6xf32>
func.func @conflict(%w: tensor<12xf32> {nn.name = "w", nn.role = #nn.role<parameter>}) -> (tensor<3x4xf32>, tensor<2x6xf32>) {
  %0 = nn.reshape %w : tensor<12xf32> -> tensor<3x4xf32>
  %1 = nn.reshape %w : tensor<12xf32> -> tensor<2x6xf32>
  return %0, %1 : tensor<3x4xf32>, tensor<2x6xf32>
}

// A table that is gathered and, transposed, multiplied becomes one argument.
// VIEW-LABEL: func @tied
// VIEW:         %[[E:.+]] = nn.gather %[[T:.+]], %{{.+}} dim = 0
// VIEW:         nn.einsum "ab,cb->ac" %[[E]], %[[T]]
func.func @tied(%t: tensor<7x3xf32> {nn.name = "t", nn.role = #nn.role<parameter>},
                %ids: tensor<5xi64> {nn.name = "ids", nn.role = #nn.role<tokens>}) -> tensor<5x7xf32> {
  %0 = nn.gather %t, %ids dim = 0 : tensor<7x3xf32>, tensor<5xi64> -> tensor<5x3xf32>
  %1 = nn.transpose %t [1, 0] : tensor<7x3xf32> -> tensor<3x7xf32>
  %2 = nn.einsum "ab,bc->ac" %0, %1 : tensor<5x3xf32>, tensor<3x7xf32> -> tensor<5x7xf32>
  return %2 : tensor<5x7xf32>
}

// Equal slices of one parameter: two matrices stored as one.
// VIEW-LABEL: func @gated
// VIEW-SAME:    tensor<6x2x4xf32> {{.*}}nn.view = #nn.view<shape = [6, 8], view = [6, 2, 4]>
// VIEW:         nn.einsum "{{.*}}" {{.*}} : tensor<5x6xf32>, tensor<6x2x4xf32> -> tensor<5x2x4xf32>
func.func @gated(%x: tensor<5x6xf32> {nn.name = "x", nn.role = #nn.role<input>},
                 %w: tensor<6x8xf32> {nn.name = "w", nn.role = #nn.role<parameter>}) -> tensor<5x4xf32> {
  %0 = nn.einsum "ab,bc->ac" %x, %w : tensor<5x6xf32>, tensor<6x8xf32> -> tensor<5x8xf32>
  %1 = nn.slice %0 [0, 0] [5, 4] [1, 1] : tensor<5x8xf32> -> tensor<5x4xf32>
  %2 = nn.slice %0 [0, 4] [5, 4] [1, 1] : tensor<5x8xf32> -> tensor<5x4xf32>
  %3 = arith.mulf %1, %2 : tensor<5x4xf32>
  return %3 : tensor<5x4xf32>
}

// Slices that leave out elements, or that differ in size, are not split.
// VIEW-LABEL: func @cut
// VIEW-SAME:    tensor<6x8xf32> {nn.name = "w"
// VIEW-SAME:    tensor<6x8xf32> {nn.name = "v"
func.func @cut(%x: tensor<5x6xf32> {nn.name = "x", nn.role = #nn.role<input>},
               %w: tensor<6x8xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
               %v: tensor<6x8xf32> {nn.name = "v", nn.role = #nn.role<parameter>})
    -> (tensor<5x4xf32>, tensor<5x6xf32>, tensor<5x2xf32>) {
  %0 = nn.einsum "ab,bc->ac" %x, %w : tensor<5x6xf32>, tensor<6x8xf32> -> tensor<5x8xf32>
  %1 = nn.slice %0 [0, 0] [5, 4] [1, 1] : tensor<5x8xf32> -> tensor<5x4xf32>
  %2 = nn.einsum "ab,bc->ac" %x, %v : tensor<5x6xf32>, tensor<6x8xf32> -> tensor<5x8xf32>
  %3 = nn.slice %2 [0, 0] [5, 6] [1, 1] : tensor<5x8xf32> -> tensor<5x6xf32>
  %4 = nn.slice %2 [0, 6] [5, 2] [1, 1] : tensor<5x8xf32> -> tensor<5x2xf32>
  return %1, %3, %4 : tensor<5x4xf32>, tensor<5x6xf32>, tensor<5x2xf32>
}
