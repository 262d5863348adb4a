// RUN: cleave-opt --rt-plan-memory --split-input-file %s | FileCheck %s

// The bytes that a launch reads past the end of an operand overlap no other value.

// CHECK: rt.arenas = array<i64: 192, 0>
module {
  func.func private @k(tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
  func.func @f(%x: tensor<16xf32> {nn.name = "x", nn.role = #nn.role<parameter>})
      -> (tensor<16xf32> {nn.name = "z", nn.role = #nn.role<output>}) {
    %0 = rt.launch @k(%x, %x) extent = 16 grain = 1 {rt.beyond = array<i64: 16, 0>}
      : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
    return %0 : tensor<16xf32>
  }
}

// -----

// A tile of a tile, each along another axis, both past the end: the last rank's
// tile starts at element 14 + 2 * 7 and has 7 elements.

// CHECK: rt.arenas = array<i64: 256, 0>
// CHECK-LABEL: func @tile_of_tile
module {
  func.func private @k(tensor<1x7xf32>) -> tensor<1x7xf32>
  func.func @tile_of_tile(%x: tensor<3x7xf32> {nn.name = "x", nn.role = #nn.role<input>})
      -> (tensor<1x7xf32> {nn.name = "z", nn.role = #nn.role<output>}) {
    %0 = rt.alias %x offset = 0 axis_terms = [0, 1, 2, 14] reach = 28 : (tensor<3x7xf32>) -> tensor<2x7xf32>
    %1 = rt.alias %0 offset = 0 axis_terms = [1, 1, 3, 7] reach = 21 : (tensor<2x7xf32>) -> tensor<1x7xf32>
    %2 = rt.launch @k(%1) extent = 1 grain = 1 : (tensor<1x7xf32>) -> tensor<1x7xf32>
    return %2 : tensor<1x7xf32>
  }
}

// -----

// The same, and the launch reads 14 elements past its operand.

// CHECK: rt.arenas = array<i64: 320, 0>
// CHECK-LABEL: func @past_tile_of_tile
module {
  func.func private @k(tensor<1x7xf32>) -> tensor<1x7xf32>
  func.func @past_tile_of_tile(%x: tensor<3x7xf32> {nn.name = "x", nn.role = #nn.role<input>})
      -> (tensor<1x7xf32> {nn.name = "z", nn.role = #nn.role<output>}) {
    %0 = rt.alias %x offset = 0 axis_terms = [0, 1, 2, 14] reach = 28 : (tensor<3x7xf32>) -> tensor<2x7xf32>
    %1 = rt.alias %0 offset = 0 axis_terms = [1, 1, 3, 7] reach = 21 : (tensor<2x7xf32>) -> tensor<1x7xf32>
    %2 = rt.launch @k(%1) extent = 1 grain = 1 {rt.beyond = array<i64: 14>} : (tensor<1x7xf32>) -> tensor<1x7xf32>
    return %2 : tensor<1x7xf32>
  }
}

// -----

// An operand without elements has no bytes, but elements have.

// CHECK: rt.arenas = array<i64: 192, 0>
// CHECK-LABEL: func @past_empty_tile
module {
  func.func private @k(tensor<0x7xf32>) -> tensor<1x7xf32>
  func.func @past_empty_tile(%x: tensor<3x7xf32> {nn.name = "x", nn.role = #nn.role<parameter>})
      -> (tensor<1x7xf32> {nn.name = "z", nn.role = #nn.role<output>}) {
    %0 = rt.alias %x offset = 0 axis_terms = [0, 1, 2, 14] reach = 14 : (tensor<3x7xf32>) -> tensor<0x7xf32>
    %1 = rt.launch @k(%0) extent = 1 grain = 1 {rt.beyond = array<i64: 14>} : (tensor<0x7xf32>) -> tensor<1x7xf32>
    return %1 : tensor<1x7xf32>
  }
}
