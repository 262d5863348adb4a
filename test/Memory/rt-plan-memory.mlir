// RUN: cleave-opt %s --rt-plan-memory -split-input-file | FileCheck %s

func.func private @one(tensor<8xf32>) -> tensor<8xf32>
func.func private @two(tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>

// Two values are alive at once, so two buffers are enough for three values.
// CHECK:       rt.arenas = array<i64: 128, 128>
// CHECK-LABEL: func @places
// CHECK-SAME:    rt.buffer = array<i64: 0, 0>
// CHECK-SAME:    rt.buffer = array<i64: 0, 64>
// CHECK:         rt.launch @one{{.*}} {rt.buffers = array<i64: 1, 0>}
// CHECK:         rt.launch @one{{.*}} {rt.buffers = array<i64: 1, 64>}
// CHECK:         rt.launch @one{{.*}} {rt.buffers = array<i64: 1, 0>}
// CHECK:         rt.launch @one{{.*}} {rt.buffers = array<i64: 0, 64>}
func.func @places(%x: tensor<8xf32> {nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<8xf32> {nn.name = "y", nn.role = #nn.role<output>}) {
  %0 = rt.launch @one(%x) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
  %1 = rt.launch @one(%0) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
  %2 = rt.launch @one(%1) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
  %3 = rt.launch @one(%2) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
  return %3 : tensor<8xf32>
}

// -----

func.func private @one(tensor<8xf32>) -> tensor<8xf32>
func.func private @two(tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>

// A kernel marked in-place overwrites an operand that it reads last. It overwrites
// neither an operand that is read later nor a function argument that must survive.
// CHECK:       rt.arenas = array<i64: 128, 128>
// CHECK-LABEL: func @in_place
// CHECK:         rt.launch @one(%{{.*}}) {{.*}} {rt.buffers = array<i64: 1, 0>}
// CHECK:         rt.launch @one(%{{.*}}) {{.*}} {rt.buffers = array<i64: 1, 64>}
// CHECK:         rt.launch @two(%{{.*}}) {{.*}} {rt.buffers = array<i64: 1, 0>}
// CHECK:         rt.launch @one(%{{.*}}) {{.*}} {rt.buffers = array<i64: 0, 64>}
func.func @in_place(%x: tensor<8xf32> {nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<8xf32> {nn.name = "y", nn.role = #nn.role<output>}) {
  %0 = rt.launch @one(%x) extent = 8 grain = 1 inplace = [0, 0] : (tensor<8xf32>) -> tensor<8xf32>
  %1 = rt.launch @one(%0) extent = 8 grain = 1 inplace = [0, 0] : (tensor<8xf32>) -> tensor<8xf32>
  %2 = rt.launch @two(%0, %1) extent = 8 grain = 1 inplace = [0, 0] : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %3 = rt.launch @one(%2) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
  return %3 : tensor<8xf32>
}

// -----

func.func private @step(tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>)

// New state overwrites the old state; the gradient's buffer differs from that of
// the parameter of the same name.
// CHECK:       rt.arenas = array<i64: 192, 0>
// CHECK-LABEL: func @update
// CHECK:         rt.launch @step{{.*}} {rt.buffers = array<i64: 0, 0, 0, 64>}
// CHECK-NEXT:    return
func.func @update(%p: tensor<8xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                  %m: tensor<8xf32> {nn.name = "w.m", nn.role = #nn.role<state>},
                  %g: tensor<8xf32> {nn.name = "w", nn.role = #nn.role<gradient>})
    -> (tensor<8xf32> {nn.name = "w", nn.role = #nn.role<parameter>}, tensor<8xf32> {nn.name = "w.m", nn.role = #nn.role<state>}) {
  %0:2 = rt.launch @step(%p, %m, %g) extent = 8 grain = 1 inplace = [0, 0, 1, 1]
    : (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>)
  return %0#0, %0#1 : tensor<8xf32>, tensor<8xf32>
}

// -----

func.func private @one(tensor<8xf32>) -> tensor<8xf32>
func.func private @two(tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>

// The update is not in place: the old value is read after the new one is computed.
// CHECK-LABEL: func @negative_donation
// CHECK:         rt.launch @one(%{{.*}}) {{.*}} {rt.buffers = array<i64: 1, 0>}
// CHECK:         rt.launch @two(%{{.*}}) {{.*}} {rt.buffers = array<i64: 0, 64>}
// CHECK:         rt.copy {{.*}} {rt.buffers = array<i64: 0, 0>}
func.func @negative_donation(%p: tensor<8xf32> {nn.name = "w", nn.role = #nn.role<parameter>})
    -> (tensor<8xf32> {nn.name = "w", nn.role = #nn.role<parameter>}, tensor<8xf32> {nn.name = "y", nn.role = #nn.role<output>}) {
  %0 = rt.launch @one(%p) extent = 8 grain = 1 inplace = [0, 0] : (tensor<8xf32>) -> tensor<8xf32>
  %1 = rt.launch @two(%p, %0) extent = 8 grain = 1 : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  return %0, %1 : tensor<8xf32>, tensor<8xf32>
}

// -----

// A swap of two buffers goes through temporary memory.
// CHECK-LABEL: func @swap
// CHECK-SAME:    (%[[P:[a-z0-9]+]]: {{.*}}, %[[Q:[a-z0-9]+]]: {{.*}}) ->
// CHECK:         %[[A:.+]] = rt.copy %[[Q]] {{.*}} {rt.buffers = array<i64: 1, 0>}
// CHECK-NEXT:    %[[B:.+]] = rt.copy %[[P]] {{.*}} {rt.buffers = array<i64: 1, 64>}
// CHECK-NEXT:    %[[C:.+]] = rt.copy %[[A]] {{.*}} {rt.buffers = array<i64: 0, 0>}
// CHECK-NEXT:    %[[D:.+]] = rt.copy %[[B]] {{.*}} {rt.buffers = array<i64: 0, 64>}
// CHECK-NEXT:    return %[[C]], %[[D]]
func.func @swap(%p: tensor<8xf32> {nn.name = "p", nn.role = #nn.role<state>}, %q: tensor<8xf32> {nn.name = "q", nn.role = #nn.role<state>})
    -> (tensor<8xf32> {nn.name = "p", nn.role = #nn.role<state>}, tensor<8xf32> {nn.name = "q", nn.role = #nn.role<state>}) {
  return %q, %p : tensor<8xf32>, tensor<8xf32>
}

// -----

// A GEMM accumulates in place; an accumulator that is read again is copied first.
// CHECK-LABEL: func @accumulate
// CHECK:         rt.gemm {{.*}} accumulate(%{{.*}}) {{.*}} {rt.buffers = array<i64: 0, 64>}
// CHECK-NEXT:    %[[A:.+]] = rt.copy %{{.*}} {rt.buffers = array<i64: 0, 128>}
// CHECK-NEXT:    rt.gemm {{.*}} accumulate(%[[A]]) {{.*}} {rt.buffers = array<i64: 0, 128>}
func.func @accumulate(%x: tensor<4x4xf32> {nn.name = "x", nn.role = #nn.role<input>}, %g: tensor<4x4xf32> {nn.name = "w", nn.role = #nn.role<gradient>})
    -> (tensor<4x4xf32> {nn.name = "w", nn.role = #nn.role<gradient>}, tensor<4x4xf32> {nn.name = "y", nn.role = #nn.role<output>}) {
  %0 = rt.gemm a(%x [0, 4, 1]) b(%x [0, 4, 1]) accumulate(%g) c [0, 4, 1] m = 4 n = 4 k = 4
    : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = rt.gemm a(%x [0, 4, 1]) b(%x [0, 4, 1]) accumulate(%x) c [0, 4, 1] m = 4 n = 4 k = 4
    : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %0, %1 : tensor<4x4xf32>, tensor<4x4xf32>
}

// -----

func.func private @one(tensor<8xf32>) -> tensor<8xf32>

// A collective holds its operands and results from start to wait; an all-reduce
// whose operand has no other reader before the wait runs in place.
// CHECK:       rt.arenas = array<i64: 256, 128>
// CHECK-LABEL: func @in_flight
// CHECK:         rt.launch @one(%{{.*}}) {{.*}} {rt.buffers = array<i64: 1, 0>}
// CHECK-NEXT:    rt.collective {{.*}} {rt.buffers = array<i64: 1, 0, -1, 0>}
// CHECK-NEXT:    rt.launch @one(%{{.*}}) {{.*}} {rt.buffers = array<i64: 1, 64>}
// CHECK-NEXT:    rt.launch @one(%{{.*}}) {{.*}} {rt.buffers = array<i64: 0, 64>}
// CHECK-NEXT:    rt.wait {{.*}} {rt.buffers = array<i64: 1, 0>}
// CHECK-NEXT:    rt.alias {{.*}} {rt.buffers = array<i64: 1, 16>}
func.func @in_flight(%x: tensor<8xf32> {nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<8xf32> {nn.name = "y", nn.role = #nn.role<output>}, tensor<4xf32> {nn.name = "z", nn.role = #nn.role<output>},
        tensor<8xf32> {nn.name = "u", nn.role = #nn.role<output>}) {
  %0 = rt.launch @one(%x) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
  %1:2 = rt.collective all_reduce(%0) group = [0, 1, 2] layout = [1, 8, 1, 8] purpose = "gradient"
    : (tensor<8xf32>) -> (tensor<8xf32>, !rt.token)
  %2 = rt.launch @one(%x) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
  %3 = rt.launch @one(%2) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
  %4 = rt.wait %1#1 values(%1#0) sources(%0) : (!rt.token, tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %5 = rt.alias %4 offset = 4 : (tensor<8xf32>) -> tensor<4xf32>
  %6 = rt.launch @one(%4) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
  return %3, %5, %6 : tensor<8xf32>, tensor<4xf32>, tensor<8xf32>
}

// -----

func.func private @one(tensor<8xf32>) -> tensor<8xf32>

// Here another command reads the operand before the wait.
// CHECK:       rt.arenas = array<i64: 256, 192>
// CHECK-LABEL: func @read_meanwhile
// CHECK:         rt.launch @one(%{{.*}}) {{.*}} {rt.buffers = array<i64: 1, 0>}
// CHECK-NEXT:    rt.collective {{.*}} {rt.buffers = array<i64: 1, 64, -1, 0>}
// CHECK-NEXT:    rt.launch @one(%{{.*}}) {{.*}} {rt.buffers = array<i64: 1, 128>}
// CHECK-NEXT:    rt.launch @one(%{{.*}}) {{.*}} {rt.buffers = array<i64: 0, 64>}
// CHECK-NEXT:    rt.wait {{.*}} {rt.buffers = array<i64: 1, 64>}
// CHECK-NEXT:    rt.alias {{.*}} {rt.buffers = array<i64: 1, 80>}
func.func @read_meanwhile(%x: tensor<8xf32> {nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<8xf32> {nn.name = "y", nn.role = #nn.role<output>}, tensor<4xf32> {nn.name = "z", nn.role = #nn.role<output>},
        tensor<8xf32> {nn.name = "u", nn.role = #nn.role<output>}) {
  %0 = rt.launch @one(%x) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
  %1:2 = rt.collective all_reduce(%0) group = [0, 1, 2] layout = [1, 8, 1, 8] purpose = "gradient"
    : (tensor<8xf32>) -> (tensor<8xf32>, !rt.token)
  %2 = rt.launch @one(%0) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
  %3 = rt.launch @one(%2) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
  %4 = rt.wait %1#1 values(%1#0) sources(%0) : (!rt.token, tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %5 = rt.alias %4 offset = 4 : (tensor<8xf32>) -> tensor<4xf32>
  %6 = rt.launch @one(%4) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
  return %3, %5, %6 : tensor<8xf32>, tensor<4xf32>, tensor<8xf32>
}

// -----

// A tile that extends past the end of its source enlarges the source's buffer.
// CHECK:       rt.arenas = array<i64: 192, 0>
// CHECK-LABEL: func @reach
func.func @reach(%x: tensor<15xf32> {nn.name = "x", nn.role = #nn.role<input>}) -> (tensor<8xf32> {nn.name = "y", nn.role = #nn.role<output>}) {
  %0 = rt.alias %x offset = 0 axis_terms = [0, 1, 2, 8] reach = 24 : (tensor<15xf32>) -> tensor<8xf32>
  %1 = rt.copy %0 [0, 1] to [0, 1] shape = [8] : (tensor<8xf32>) -> tensor<8xf32>
  return %1 : tensor<8xf32>
}
