// RUN: cleave-opt %s | cleave-opt | FileCheck %s

// CHECK-LABEL: func @ports
// CHECK-SAME: nn.data = #nn.data<file = "w.bin", offset = 4, length = 48, dtype = "f32">
// CHECK-SAME: nn.tied = [#nn.tied<name = "v", transposed = true>]
// CHECK-SAME: nn.view = #nn.view<shape = [12], view = [4, 3], permutation = [1, 0]>
// CHECK-SAME: nn.init = #nn.init<normal, a = 0.000000e+00 : f64, b = 2.000000e-02 : f64>
// CHECK-SAME: nn.init = #nn.init<zeros>
// CHECK-SAME: nn.parts = [#nn.part<name = "a", data = <file = "w.bin", offset = 0, length = 16, dtype = "f32">>, #nn.part<name = "b">]
// CHECK-SAME: nn.router = #nn.router<name = "gate", counts = chosen, slots_per_token = 2, product = "dot">
// CHECK-SAME: nn.router = #nn.router<name = "gate", counts = taken, capacity = 3, capacity_of = 8, bias = "b">
func.func @ports(
    %w: tensor<3x4xf32> {nn.data = #nn.data<file = "w.bin", offset = 4, length = 48, dtype = "f32">,
                         nn.tied = [#nn.tied<name = "v", transposed = true>],
                         nn.view = #nn.view<shape = [12], view = [4, 3], permutation = [1, 0]>},
    %u: tensor<3xf32> {nn.init = #nn.init<normal, a = 0.0 : f64, b = 0.02 : f64>},
    %z: tensor<3xf32> {nn.init = #nn.init<zeros>},
    %s: tensor<2x4xf32> {nn.parts = [#nn.part<name = "a", data = <file = "w.bin", offset = 0, length = 16, dtype = "f32">>, #nn.part<name = "b">]},
    %c: tensor<4xi64> {nn.router = #nn.router<name = "gate", counts = chosen, slots_per_token = 2, product = "dot">},
    %t: tensor<4xi64> {nn.router = #nn.router<name = "gate", counts = taken, capacity = 3, capacity_of = 8, bias = "b">}) {
  return
}

// CHECK-LABEL: func @lookups
// CHECK-SAME: nn.lookups = [#nn.lookup<offsets = [0, 0], sizes = [2, 3], strides = [1, 1], rows = 200, table = "wte">]
func.func @lookups(%x: tensor<2x3xi64> {nn.lookups = [#nn.lookup<offsets = [0, 0], sizes = [2, 3], strides = [1, 1], rows = 200, table = "wte">]}) {
  return
}
