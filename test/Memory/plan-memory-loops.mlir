// RUN: cleave-opt %s --rt-plan-memory | FileCheck %s

// Three floats take 12 bytes. The pair begins at 0: a trip reads its second buffer first, which is 12 bytes further, and
// then the two in turn. The stacked result is the output in arena 0, in which each trip writes 12 bytes further. The
// values of a trip are in scratch memory of the loop.
func.func private @k(tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>

// CHECK-LABEL: func.func @f(
// CHECK:         rt.repeat @body trips = 5 pairs(%{{.*}}) slices(%{{.*}}) has_scratch
// CHECK-SAME:    {rt.buffers = [#rt.address<1, [[$PAIR:[0-9]+]]>, #rt.address<0, [[$OUT:[0-9]+]]>, #rt.address<1, [[$SCRATCH:[0-9]+]]>]}
func.func @f(%h0: tensor<3xf32> {nn.name = "h0", nn.role = #nn.role<input>},
             %xs: tensor<5x3xf32> {nn.name = "xs", nn.role = #nn.role<input>})
    -> (tensor<5x3xf32> {nn.name = "ys", nn.role = #nn.role<output>}) {
  %0 = rt.copy %h0 [0, 1] to [3, 1] shape = [3] : (tensor<3xf32>) -> tensor<2x3xf32>
  %1:2 = rt.repeat @body trips = 5 pairs(%0) slices(%xs) : (tensor<2x3xf32>, tensor<5x3xf32>) -> (tensor<2x3xf32>, tensor<5x3xf32>)
  return %1#1 : tensor<5x3xf32>
}

// CHECK-LABEL: func.func private @body(
// CHECK-SAME:    rt.buffer = #rt.address<1, {{[0-9]+}}, trips = [0, 2, -12]>
// CHECK-SAME:    rt.buffer = #rt.address<0, {{[0-9]+}}, trips = [0, 5, 12]>
// CHECK-SAME:    rt.buffer = #rt.address<1, [[$PAIR]], trips = [0, 2, 12]>
// CHECK-SAME:    rt.buffer = #rt.address<0, [[$OUT]], trips = [0, 5, 12]>
// CHECK:         rt.launch @k(%{{.*}}, %{{.*}}) extent = 3 grain = 1 {rt.buffers = [#rt.address<1, [[$SCRATCH]]>]}
func.func private @body(%h: tensor<3xf32> {nn.name = "0", nn.role = #nn.role<input>},
                        %x: tensor<3xf32> {nn.name = "1", nn.role = #nn.role<input>})
    -> (tensor<3xf32> {nn.name = "0", nn.role = #nn.role<output>}, tensor<3xf32> {nn.name = "1", nn.role = #nn.role<output>})
    attributes {rt.body} {
  %0 = rt.launch @k(%h, %x) extent = 3 grain = 1 : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %1 = rt.launch @k(%h, %0) extent = 3 grain = 1 : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %2 = rt.launch @k(%0, %0) extent = 3 grain = 1 : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  return %1, %2 : tensor<3xf32>, tensor<3xf32>
}
