// RUN: cleave-opt %s --split-input-file --nn-mark-batch | FileCheck %s

// The mask has no batch dimension, whatever its size. The transposed output has
// the batch in dimension 1. A sum over the batch needs the whole call.
// CHECK-LABEL: func @tokens
// CHECK-SAME:    tensor<6x6xf32> {nn.name = "mask"
// CHECK-SAME:    tensor<6x6xi64> {nn.batch_dim = 0 : i64, nn.name = "ids"
// CHECK-SAME:    -> (tensor<6x6x4xf32> {nn.batch_dim = 0 : i64, nn.name = "y", nn.role = #nn.role<output>}
// CHECK-SAME:    tensor<6x6x4xf32> {nn.batch_dim = 1 : i64, nn.name = "t", nn.role = #nn.role<output>}
// CHECK-SAME:    tensor<4xf32> {nn.name = "sums", nn.role = #nn.role<output>, nn.whole_call}
// CHECK-SAME:    tensor<6x6xf32> {nn.name = "m2", nn.role = #nn.role<output>}
func.func @tokens(%mask: tensor<6x6xf32> {nn.name = "mask", nn.role = #nn.role<input>},
                  %ids: tensor<6x6xi64> {nn.name = "ids", nn.role = #nn.role<tokens>},
                  %table: tensor<9x4xf32> {nn.name = "table", nn.role = #nn.role<parameter>})
    -> (tensor<6x6x4xf32> {nn.name = "y", nn.role = #nn.role<output>},
        tensor<6x6x4xf32> {nn.name = "t", nn.role = #nn.role<output>},
        tensor<4xf32> {nn.name = "sums", nn.role = #nn.role<output>},
        tensor<6x6xf32> {nn.name = "m2", nn.role = #nn.role<output>}) {
  %e = nn.gather %table, %ids dim = 0 : tensor<9x4xf32>, tensor<6x6xi64> -> tensor<6x6x4xf32>
  %y = nn.einsum "st,btd->bsd" %mask, %e : tensor<6x6xf32>, tensor<6x6x4xf32> -> tensor<6x6x4xf32>
  %t = nn.transpose %y [1, 0, 2] : tensor<6x6x4xf32> -> tensor<6x6x4xf32>
  %s = nn.reduce sum %y dims = [0, 1] : tensor<6x6x4xf32> -> tensor<4xf32>
  %m = arith.addf %mask, %mask : tensor<6x6xf32>
  return %y, %t, %s, %m : tensor<6x6x4xf32>, tensor<6x6x4xf32>, tensor<4xf32>, tensor<6x6xf32>
}

// -----

// The batch is merged with another dimension and split again; the second input
// has the merged dimension.
// CHECK-LABEL: func @product
// CHECK-SAME:    tensor<2x3x4xf32> {nn.batch_dim = 0 : i64, nn.name = "x"
// CHECK-SAME:    tensor<6x4xf32> {nn.name = "y"
// CHECK-SAME:    -> (tensor<2x12xf32> {nn.batch_dim = 0 : i64, nn.name = "z", nn.role = #nn.role<output>}
func.func @product(%x: tensor<2x3x4xf32> {nn.name = "x", nn.role = #nn.role<input>},
                   %y: tensor<6x4xf32> {nn.name = "y", nn.role = #nn.role<input>})
    -> (tensor<2x12xf32> {nn.name = "z", nn.role = #nn.role<output>}) {
  %0 = nn.reshape %x : tensor<2x3x4xf32> -> tensor<6x4xf32>
  %1 = arith.addf %0, %y : tensor<6x4xf32>
  %2 = nn.reshape %1 : tensor<6x4xf32> -> tensor<2x12xf32>
  return %2 : tensor<2x12xf32>
}

// -----

// An input that meets the other one only through sums has its batch first, as the other one has.
// CHECK-LABEL: func @sums
// CHECK-SAME:    {nn.batch_dim = 0 : i64, nn.name = "x"
// CHECK-SAME:    {nn.batch_dim = 0 : i64, nn.name = "y"
// CHECK-SAME:    -> (tensor<f32> {nn.name = "z", nn.role = #nn.role<output>, nn.whole_call})
func.func @sums(%x: tensor<5x3xf32> {nn.name = "x", nn.role = #nn.role<input>},
                %y: tensor<5xf32> {nn.name = "y", nn.role = #nn.role<input>})
    -> (tensor<f32> {nn.name = "z", nn.role = #nn.role<output>}) {
  %0 = nn.reduce sum %x dims = [0, 1] : tensor<5x3xf32> -> tensor<f32>
  %1 = nn.reduce sum %y dims = [0] : tensor<5xf32> -> tensor<f32>
  %2 = arith.addf %0, %1 : tensor<f32>
  return %2 : tensor<f32>
}

// -----

// A mean over the samples that is broadcast back to each of them mixes the samples.
// CHECK-LABEL: func @mixes
// CHECK-SAME:    -> (tensor<5x3xf32> {nn.batch_dim = 0 : i64, nn.name = "y", nn.role = #nn.role<output>, nn.whole_call})
func.func @mixes(%x: tensor<5x3xf32> {nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<5x3xf32> {nn.name = "y", nn.role = #nn.role<output>}) {
  %0 = nn.reduce sum %x dims = [0] : tensor<5x3xf32> -> tensor<3xf32>
  %1 = nn.broadcast %0 dims = [1] : tensor<3xf32> -> tensor<5x3xf32>
  %2 = arith.subf %x, %1 : tensor<5x3xf32>
  return %2 : tensor<5x3xf32>
}

// -----

// A batch dimension given for an input overrides the default order.
// CHECK-LABEL: func @said
// CHECK-SAME:    tensor<4x5xf32> {nn.batch_dim = -1 : i64, nn.name = "m"
// CHECK-SAME:    tensor<5x4xf32> {nn.batch_dim = 1 : i64, nn.name = "x"
// CHECK-SAME:    -> (tensor<4x5xf32> {nn.batch_dim = 0 : i64,
func.func @said(%m: tensor<4x5xf32> {nn.batch_dim = -1 : i64, nn.name = "m", nn.role = #nn.role<input>},
                %x: tensor<5x4xf32> {nn.batch_dim = 1 : i64, nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<4x5xf32> {nn.name = "y", nn.role = #nn.role<output>}) {
  %0 = nn.transpose %x [1, 0] : tensor<5x4xf32> -> tensor<4x5xf32>
  return %0 : tensor<4x5xf32>
}
