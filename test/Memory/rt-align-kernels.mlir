// RUN: cleave-opt %s --rt-align-kernels --split-input-file | FileCheck %s

// All addresses are multiples of 16: the kernel needs no alignment attribute.

// CHECK: func.func private @wide(tensor<8xf32>) -> tensor<8xf32>{{$}}
func.func private @wide(tensor<8xf32>) -> tensor<8xf32>
func.func @f(%x: tensor<16xf32> {nn.name = "x", nn.role = #nn.role<input>, rt.buffer = #rt.address<0, 0>}) {
  %0 = rt.alias %x offset = 4 {rt.buffers = [#rt.address<0, 16>]} : (tensor<16xf32>) -> tensor<8xf32>
  %1 = rt.launch @wide(%0) extent = 8 grain = 1 {rt.buffers = [#rt.address<1, 64>]} : (tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

// The only launch reads an unaligned view: the alignment is set on the kernel itself.

// CHECK: func.func private @narrow(tensor<8xf32>) -> tensor<8xf32> attributes {nn.align = array<i64: 8, 16>}
func.func private @narrow(tensor<8xf32>) -> tensor<8xf32>
func.func @f(%x: tensor<20xf32> {nn.name = "x", nn.role = #nn.role<input>, rt.buffer = #rt.address<0, 0>}) {
  %0 = rt.alias %x offset = 2 {rt.buffers = [#rt.address<0, 8>]} : (tensor<20xf32>) -> tensor<8xf32>
  // CHECK: rt.launch @narrow
  %1 = rt.launch @narrow(%0) extent = 8 grain = 1 {rt.buffers = [#rt.address<1, 64>]} : (tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

// Aligned launches keep the kernel with wide accesses. The unaligned launches
// share a second kernel with the smallest of their alignments. The alignment of
// nested views follows from the sum of their offsets.

// CHECK: func.func private @both(tensor<8xf32>) -> tensor<8xf32> attributes {nn.extent = 8 : i64}
// CHECK: func.func private @both_unaligned(tensor<8xf32>) -> tensor<8xf32> attributes {nn.align = array<i64: 4, 16>, nn.extent = 8 : i64}
func.func private @both(tensor<8xf32>) -> tensor<8xf32> attributes {nn.extent = 8 : i64}
func.func @f(%x: tensor<20xf32> {nn.name = "x", nn.role = #nn.role<input>, rt.buffer = #rt.address<0, 0>}) {
  %0 = rt.alias %x offset = 2 {rt.buffers = [#rt.address<0, 8>]} : (tensor<20xf32>) -> tensor<16xf32>
  %1 = rt.alias %0 offset = 1 {rt.buffers = [#rt.address<0, 12>]} : (tensor<16xf32>) -> tensor<8xf32>
  %2 = rt.alias %0 offset = 2 {rt.buffers = [#rt.address<0, 16>]} : (tensor<16xf32>) -> tensor<8xf32>
  %3 = rt.alias %x offset = 6 {rt.buffers = [#rt.address<0, 24>]} : (tensor<20xf32>) -> tensor<8xf32>
  // CHECK: rt.launch @both_unaligned(
  %4 = rt.launch @both(%1) extent = 8 grain = 1 {rt.buffers = [#rt.address<1, 64>]} : (tensor<8xf32>) -> tensor<8xf32>
  // CHECK: rt.launch @both(
  %5 = rt.launch @both(%2) extent = 8 grain = 1 {rt.buffers = [#rt.address<1, 64>]} : (tensor<8xf32>) -> tensor<8xf32>
  // CHECK: rt.launch @both_unaligned(
  %6 = rt.launch @both(%3) extent = 8 grain = 1 {rt.buffers = [#rt.address<1, 64>]} : (tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

// The start of a tile depends on the rank.

// CHECK: func.func private @tile(tensor<5xf32>) -> tensor<5xf32> attributes {nn.align = array<i64: 4, 16>}
func.func private @tile(tensor<5xf32>) -> tensor<5xf32>
func.func @f(%x: tensor<20xf32> {nn.name = "x", nn.role = #nn.role<input>, rt.buffer = #rt.address<0, 0>}) {
  %0 = rt.alias %x offset = 0 axis_terms = [0, 1, 4, 5] reach = 20 {rt.buffers = [#rt.address<0, 0>]} : (tensor<20xf32>) -> tensor<5xf32>
  %1 = rt.launch @tile(%0) extent = 5 grain = 1 {rt.buffers = [#rt.address<1, 64>]} : (tensor<5xf32>) -> tensor<5xf32>
  return
}

// -----

// A 4-byte value is never read with a wider access: no second kernel.

// CHECK: func.func private @scalar(tensor<1xf32>, tensor<8xf32>) -> tensor<8xf32> attributes {nn.align = array<i64: 4, 16, 16>}
// CHECK-NOT: _unaligned
func.func private @scalar(tensor<1xf32>, tensor<8xf32>) -> tensor<8xf32>
func.func @f(%x: tensor<20xf32> {nn.name = "x", nn.role = #nn.role<input>, rt.buffer = #rt.address<0, 0>},
             %y: tensor<8xf32> {nn.name = "y", nn.role = #nn.role<input>, rt.buffer = #rt.address<0, 128>}) {
  %0 = rt.alias %x offset = 3 {rt.buffers = [#rt.address<0, 12>]} : (tensor<20xf32>) -> tensor<1xf32>
  %1 = rt.alias %x offset = 0 {rt.buffers = [#rt.address<0, 0>]} : (tensor<20xf32>) -> tensor<1xf32>
  %2 = rt.launch @scalar(%0, %y) extent = 8 grain = 1 {rt.buffers = [#rt.address<1, 64>]} : (tensor<1xf32>, tensor<8xf32>) -> tensor<8xf32>
  %3 = rt.launch @scalar(%1, %y) extent = 8 grain = 1 {rt.buffers = [#rt.address<1, 64>]} : (tensor<1xf32>, tensor<8xf32>) -> tensor<8xf32>
  return
}
