// RUN: cleave-opt %s --nn-count-choices -split-input-file | FileCheck %s

// Slots (token-expert pairs) are counted before and after some are dropped, once
// for both products, in the stage in which they are.
// CHECK-LABEL: func @loss_train(
// CHECK-SAME:    tensor<4xi64> {nn.name = "w.chosen", nn.role = #nn.role<accumulator>
// CHECK-SAME:    tensor<i64> {nn.name = "w.taken", nn.role = #nn.role<accumulator>, nn.router = #nn.router<name = "w", counts = taken, slots_per_token = 1, product = "", capacity = 7, capacity_of = 3>})
// CHECK:         %[[ID:.+]] = nn.argmax
// CHECK:         %[[TAKEN:.+]] = arith.select
// CHECK:         nn.broadcast %[[ID]] dims = [0, 1] {pipe.stage = 1 : i64}
// CHECK:         %[[CHOSEN:.+]] = nn.reduce sum %{{.+}} dims = [0, 1] {pipe.stage = 1 : i64} : tensor<2x3x4xi64> -> tensor<4xi64>
// CHECK:         %[[KEPT:.+]] = arith.cmpi sge, %[[TAKEN]], %{{.+}} {pipe.stage = 1 : i64}
// CHECK:         %[[ONES:.+]] = arith.extui %[[KEPT]]
// CHECK:         %[[COUNT:.+]] = nn.reduce sum %[[ONES]] dims = [0, 1] {pipe.stage = 1 : i64} : tensor<2x3xi64> -> tensor<i64>
// CHECK:         return %{{.+}}, %{{.+}}, %[[CHOSEN]], %[[COUNT]]
func.func @loss(%w: tensor<5x4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                %e: tensor<4x5x5xf32> {nn.name = "e", nn.role = #nn.role<parameter>},
                %place: tensor<2x3xi64> {nn.name = "place", nn.role = #nn.role<input>},
                %x: tensor<2x3x5xf32> {nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
  %0 = nn.einsum "abc,cd->abd" %x, %w : tensor<2x3x5xf32>, tensor<5x4xf32> -> tensor<2x3x4xf32>
  %1 = nn.softmax %0 : tensor<2x3x4xf32>
  %id = nn.argmax %1 dim = 2 {pipe.stage = 1} : tensor<2x3x4xf32> -> tensor<2x3xi64>
  %seven = arith.constant dense<7> : tensor<2x3xi64>
  %fits = arith.cmpi slt, %place, %seven : tensor<2x3xi64>
  %none = arith.constant dense<-1> : tensor<2x3xi64>
  %taken = arith.select %fits, %id, %none {pipe.stage = 1} : tensor<2x3xi1>, tensor<2x3xi64>
  %2 = nn.grouped_dot %x, %e, %taken : tensor<2x3x5xf32>, tensor<4x5x5xf32>, tensor<2x3xi64> -> tensor<2x3x5xf32>
  %3 = nn.grouped_dot %2, %e, %taken : tensor<2x3x5xf32>, tensor<4x5x5xf32>, tensor<2x3xi64> -> tensor<2x3x5xf32>
  %4 = nn.reduce sum %3 dims = [0, 1, 2] : tensor<2x3x5xf32> -> tensor<f32>
  %one = arith.constant dense<1.0> : tensor<f32>
  return %4, %one : tensor<f32>, tensor<f32>
}

// -----

// Two routers in one function, of which one has no matrix; nothing to count
// without experts.
// CHECK-LABEL: func @loss_train(
// CHECK-SAME:    nn.name = "node.chosen"
// CHECK-SAME:    nn.name = "node.2.chosen"
func.func @loss(%e: tensor<4x5x5xf32> {nn.name = "e", nn.role = #nn.role<parameter>},
                %x: tensor<3x5xf32> {nn.name = "x", nn.role = #nn.role<input>},
                %s: tensor<3x4xf32> {nn.name = "s", nn.role = #nn.role<input>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
  %id = nn.argmax %s dim = 1 : tensor<3x4xf32> -> tensor<3xi64> loc("node")
  %p, %ids = nn.top_k %s k = 1 : tensor<3x4xf32> -> tensor<3x1xf32>, tensor<3x1xi64> loc("node")
  %0 = nn.grouped_dot %x, %e, %id : tensor<3x5xf32>, tensor<4x5x5xf32>, tensor<3xi64> -> tensor<3x5xf32>
  %1 = nn.reshape %0 : tensor<3x5xf32> -> tensor<3x1x5xf32>
  %2 = nn.grouped_dot %1, %e, %ids : tensor<3x1x5xf32>, tensor<4x5x5xf32>, tensor<3x1xi64> -> tensor<3x1x5xf32>
  %3 = nn.reduce sum %2 dims = [0, 1, 2] : tensor<3x1x5xf32> -> tensor<f32>
  return %3, %3 : tensor<f32>, tensor<f32>
}

// -----

// CHECK-LABEL: func @loss(%arg0: tensor<f32>
// CHECK-NOT:   func @loss_train
func.func @loss(%x: tensor<f32> {nn.name = "x", nn.role = #nn.role<parameter>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
  return %x, %x : tensor<f32>, tensor<f32>
}

// -----

// The capacity of an expert is that for the tokens of all samples together.
// CHECK-LABEL: func @loss_train(
// CHECK-SAME:    nn.name = "w.taken", nn.role = #nn.role<accumulator>, nn.router = #nn.router<name = "w", counts = taken, {{.*}}capacity = 2, capacity_of = 6
func.func @loss(%w: tensor<5x4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                %e: tensor<4x5x5xf32> {nn.name = "e", nn.role = #nn.role<parameter>},
                %loads: tensor<2x4xi64> {nn.name = "loads", nn.role = #nn.role<input>},
                %x: tensor<2x3x5xf32> {nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
  %0 = nn.einsum "abc,cd->abd" %x, %w : tensor<2x3x5xf32>, tensor<5x4xf32> -> tensor<2x3x4xf32>
  %id = nn.argmax %0 dim = 2 : tensor<2x3x4xf32> -> tensor<2x3xi64>
  %positions = nn.iota dim = 0 : tensor<3xi64>
  %samples = nn.iota dim = 0 : tensor<2xi64>
  %place = nn.position_in_expert %id, %positions after(%loads, %samples) experts = 4
    : (tensor<2x3xi64>, tensor<3xi64>, tensor<2x4xi64>, tensor<2xi64>) -> tensor<2x3xi64>
  %two = arith.constant dense<2> : tensor<2x3xi64>
  %fits = arith.cmpi slt, %place, %two : tensor<2x3xi64>
  %none = arith.constant dense<-1> : tensor<2x3xi64>
  %taken = arith.select %fits, %id, %none : tensor<2x3xi1>, tensor<2x3xi64>
  %1 = nn.grouped_dot %x, %e, %taken : tensor<2x3x5xf32>, tensor<4x5x5xf32>, tensor<2x3xi64> -> tensor<2x3x5xf32>
  %2 = nn.reduce sum %1 dims = [0, 1, 2] : tensor<2x3x5xf32> -> tensor<f32>
  %one = arith.constant dense<1.0> : tensor<f32>
  return %2, %one : tensor<f32>, tensor<f32>
}
