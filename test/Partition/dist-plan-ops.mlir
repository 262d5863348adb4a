// RUN: cleave-opt %s -split-input-file -dist-propagate -dist-plan-ops | FileCheck %s

dist.mesh @m <["t"=2]>

// A contracted factor that is split leaves the result partial.
// CHECK-LABEL: func @partial
// CHECK:         nn.einsum
// CHECK-SAME:      dist.plan = #dist.plan<carry = <{}>, factors = [#dist.axes<{}>, #dist.axes<{"t"}>, #dist.axes<{}>]>
// CHECK-SAME:      [#dist.sharding<@m, [{}, {}], partial = sum{"t"}>]
func.func @partial(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@m, [{}, {"t"}]>}, %w: tensor<6x5xf32>) -> tensor<4x5xf32> {
  %0 = nn.einsum "bh,hf->bf" %x, %w : tensor<4x6xf32>, tensor<6x5xf32> -> tensor<4x5xf32>
  return %0 : tensor<4x5xf32>
}

// Two partial values are added before they are reduced.
// CHECK-LABEL: func @carry
// CHECK:         arith.addf{{.*}}dist.plan = #dist.plan<carry = <{"t"}>
// CHECK-SAME:      partial = sum{"t"}
// CHECK:         math.exp{{.*}}dist.plan = #dist.plan<carry = <{}>
func.func @carry(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@m, [{}, {"t"}]>}, %v: tensor<6x5xf32>, %w: tensor<6x5xf32>) -> tensor<4x5xf32> {
  %0 = nn.einsum "bh,hf->bf" %x, %v : tensor<4x6xf32>, tensor<6x5xf32> -> tensor<4x5xf32>
  %1 = nn.einsum "bh,hf->bf" %x, %w : tensor<4x6xf32>, tensor<6x5xf32> -> tensor<4x5xf32>
  %2 = arith.addf %0, %1 : tensor<4x5xf32>
  %3 = math.exp %2 : tensor<4x5xf32>
  return %3 : tensor<4x5xf32>
}

// A partial value with two readers is reduced first.
// CHECK-LABEL: func @negative_two_readers
// CHECK:         arith.negf{{.*}}dist.plan = #dist.plan<carry = <{}>
func.func @negative_two_readers(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@m, [{}, {"t"}]>}, %v: tensor<6x5xf32>) -> (tensor<4x5xf32>, tensor<4x5xf32>) {
  %0 = nn.einsum "bh,hf->bf" %x, %v : tensor<4x6xf32>, tensor<6x5xf32> -> tensor<4x5xf32>
  %1 = arith.negf %0 : tensor<4x5xf32>
  return %0, %1 : tensor<4x5xf32>, tensor<4x5xf32>
}

// Partial sums whose sum is requested in tiles stay partial until they are added:
// one reduce-scatter of the sum, instead of one for each term.
// CHECK-LABEL: func @scatter_the_sum
// CHECK:         nn.einsum{{.*}}dist.sharding = [#dist.sharding<@m, [{}, {}], partial = sum{"t"}>]
// CHECK:         nn.einsum{{.*}}dist.sharding = [#dist.sharding<@m, [{}, {}], partial = sum{"t"}>]
// CHECK:         arith.addf{{.*}}carry = <{"t"}>
func.func @scatter_the_sum(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@m, [{}, {"t"}]>}, %v: tensor<6x5xf32>, %w: tensor<6x5xf32>)
    -> (tensor<4x5xf32> {dist.sharding = #dist.sharding<@m, [{"t"}, {}]>}) {
  %0 = nn.einsum "bh,hf->bf" %x, %v : tensor<4x6xf32>, tensor<6x5xf32> -> tensor<4x5xf32>
  %1 = nn.einsum "bh,hf->bf" %x, %w : tensor<4x6xf32>, tensor<6x5xf32> -> tensor<4x5xf32>
  %2 = arith.addf %0, %1 : tensor<4x5xf32>
  return %2 : tensor<4x5xf32>
}

// Rows are unsplit first: reducing maxima and sums along split rows and moving
// the result afterwards would send more.
// CHECK-LABEL: func @rows_first
// CHECK:         nn.softmax{{.*}}factors = [#dist.axes<{"t"}>, #dist.axes<{}>]
func.func @rows_first(%x: tensor<8x6xf32> {dist.sharding = #dist.sharding<@m, [{}, {"t"}]>})
    -> (tensor<8x6xf32> {dist.sharding = #dist.sharding<@m, [{"t"}, {}]>}) {
  %0 = nn.softmax %x : tensor<8x6xf32>
  return %0 : tensor<8x6xf32>
}

// Terms are partial sums that are rounded for storage. They are added and rounded once more
// before the reduction: one reduce-scatter in bf16 instead of three.
// CHECK-LABEL: func @sum_of_rounded
// CHECK-COUNT-3: nn.einsum{{.*}}dist.sharding = [#dist.sharding<@m, [{}, {}], partial = sum{"t"}>]
// CHECK-COUNT-2: arith.extf{{.*}}carry = <{"t"}>
// CHECK:         arith.addf{{.*}}carry = <{"t"}>
// CHECK:         arith.truncf{{.*}}carry = <{"t"}>
// CHECK-COUNT-2: arith.extf{{.*}}carry = <{"t"}>
// CHECK:         arith.addf{{.*}}carry = <{"t"}>
// CHECK:         arith.truncf{{.*}}carry = <{"t"}>{{.*}}dist.sharding = [#dist.sharding<@m, [{"t"}, {}]>]
// CHECK:         arith.extf{{.*}}carry = <{}>
func.func @sum_of_rounded(%x: tensor<4x6xbf16> {dist.sharding = #dist.sharding<@m, [{}, {"t"}]>}, %u: tensor<6x5xbf16>, %v: tensor<6x5xbf16>, %w: tensor<6x5xbf16>)
    -> (tensor<4x5xf32> {dist.sharding = #dist.sharding<@m, [{"t"}, {}]>}) {
  %0 = nn.einsum "bh,hf->bf" %x, %u : tensor<4x6xbf16>, tensor<6x5xbf16> -> tensor<4x5xbf16>
  %1 = nn.einsum "bh,hf->bf" %x, %v : tensor<4x6xbf16>, tensor<6x5xbf16> -> tensor<4x5xbf16>
  %2 = nn.einsum "bh,hf->bf" %x, %w : tensor<4x6xbf16>, tensor<6x5xbf16> -> tensor<4x5xbf16>
  %3 = arith.extf %0 : tensor<4x5xbf16> to tensor<4x5xf32>
  %4 = arith.extf %1 : tensor<4x5xbf16> to tensor<4x5xf32>
  %5 = arith.addf %3, %4 : tensor<4x5xf32>
  %6 = arith.truncf %5 {nn.storage} : tensor<4x5xf32> to tensor<4x5xbf16>
  %7 = arith.extf %6 : tensor<4x5xbf16> to tensor<4x5xf32>
  %8 = arith.extf %2 : tensor<4x5xbf16> to tensor<4x5xf32>
  %9 = arith.addf %7, %8 : tensor<4x5xf32>
  %10 = arith.truncf %9 {nn.storage} : tensor<4x5xf32> to tensor<4x5xbf16>
  %11 = arith.extf %10 : tensor<4x5xbf16> to tensor<4x5xf32>
  return %11 : tensor<4x5xf32>
}

// A rounding of the model itself applies to the complete sum.
// CHECK-LABEL: func @negative_rounded_by_the_model
// CHECK-COUNT-2: arith.extf{{.*}}carry = <{"t"}>
// CHECK:         arith.addf{{.*}}carry = <{"t"}>
// CHECK:         arith.truncf{{.*}}carry = <{}>
func.func @negative_rounded_by_the_model(%x: tensor<4x6xbf16> {dist.sharding = #dist.sharding<@m, [{}, {"t"}]>}, %u: tensor<6x5xbf16>, %v: tensor<6x5xbf16>)
    -> tensor<4x5xbf16> {
  %0 = nn.einsum "bh,hf->bf" %x, %u : tensor<4x6xbf16>, tensor<6x5xbf16> -> tensor<4x5xbf16>
  %1 = nn.einsum "bh,hf->bf" %x, %v : tensor<4x6xbf16>, tensor<6x5xbf16> -> tensor<4x5xbf16>
  %2 = arith.extf %0 : tensor<4x5xbf16> to tensor<4x5xf32>
  %3 = arith.extf %1 : tensor<4x5xbf16> to tensor<4x5xf32>
  %4 = arith.addf %2, %3 : tensor<4x5xf32>
  %5 = arith.truncf %4 : tensor<4x5xf32> to tensor<4x5xbf16>
  return %5 : tensor<4x5xbf16>
}

// A value that the model rounds once complete is not rounded before its reduction. A
// partial term that is added to a complete value is reduced as it is, in bf16.
// CHECK-LABEL: func @negative_sum_of_rounded
// CHECK:         arith.truncf{{.*}}carry = <{}>
// CHECK:         arith.extf{{.*}}carry = <{}>
// CHECK:         arith.addf{{.*}}carry = <{}>
func.func @negative_sum_of_rounded(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@m, [{}, {"t"}]>}, %w: tensor<6x5xf32>, %y: tensor<4x5xf32>) -> tensor<4x5xf32> {
  %0 = nn.einsum "bh,hf->bf" %x, %w : tensor<4x6xf32>, tensor<6x5xf32> -> tensor<4x5xf32>
  %1 = arith.truncf %0 : tensor<4x5xf32> to tensor<4x5xbf16>
  %2 = arith.extf %1 : tensor<4x5xbf16> to tensor<4x5xf32>
  %3 = arith.addf %2, %y : tensor<4x5xf32>
  return %3 : tensor<4x5xf32>
}

// One of the terms has another reader and is reduced for it: the other one is not
// widened before its own reduction.
// CHECK-LABEL: func @negative_read_twice(
// CHECK-COUNT-2: nn.einsum{{.*}}partial = sum{"t"}
// CHECK:         arith.extf{{.*}}carry = <{}>
// CHECK:         arith.extf{{.*}}carry = <{}>
func.func @negative_read_twice(%x: tensor<4x6xbf16> {dist.sharding = #dist.sharding<@m, [{}, {"t"}]>}, %u: tensor<6x5xbf16>, %v: tensor<6x5xbf16>) -> (tensor<4x5xf32>, tensor<4x5xf32>) {
  %0 = nn.einsum "bh,hf->bf" %x, %u : tensor<4x6xbf16>, tensor<6x5xbf16> -> tensor<4x5xbf16>
  %1 = nn.einsum "bh,hf->bf" %x, %v : tensor<4x6xbf16>, tensor<6x5xbf16> -> tensor<4x5xbf16>
  %2 = arith.extf %0 : tensor<4x5xbf16> to tensor<4x5xf32>
  %3 = arith.extf %1 : tensor<4x5xbf16> to tensor<4x5xf32>
  %4 = arith.addf %2, %3 : tensor<4x5xf32>
  %5 = math.exp %3 : tensor<4x5xf32>
  return %4, %5 : tensor<4x5xf32>, tensor<4x5xf32>
}

// -----

// A gradient scattered over "t" and accumulated over microbatches: over "d" both
// terms stay partial sums, which are reduced once per step.
dist.mesh @m <["d"=2, "t"=2]>
// CHECK-LABEL: func @accumulate
// CHECK:         arith.addf{{.*}}dist.plan = #dist.plan<carry = <{"d"}>, factors = [#dist.axes<{"t"}>, #dist.axes<{}>]>
// CHECK-SAME:      #dist.sharding<@m, [{"t"}, {}], partial = sum{"d"}>
func.func @accumulate(%sum: tensor<6x5xf32> {dist.sharding = #dist.sharding<@m, [{"t"}, {}], partial = sum{"d"}>},
                      %x: tensor<8x6xf32> {dist.sharding = #dist.sharding<@m, [{"d", "t"}, {}]>},
                      %dy: tensor<8x5xf32> {dist.sharding = #dist.sharding<@m, [{"d", "t"}, {}]>})
    -> (tensor<6x5xf32> {dist.sharding = #dist.sharding<@m, [{"t"}, {}], partial = sum{"d"}>}) {
  %0 = nn.einsum "bi,bo->io" %x, %dy : tensor<8x6xf32>, tensor<8x5xf32> -> tensor<6x5xf32>
  %1 = arith.addf %sum, %0 : tensor<6x5xf32>
  return %1 : tensor<6x5xf32>
}

// -----

// Only the first rows of a table are read: their gradient is padded with zeros,
// and added as partial sums to a value that is reduced once per step.
dist.mesh @m <["d"=2]>
// CHECK-LABEL: func @padded_gradient
// CHECK:         nn.pad{{.*}}dist.plan = #dist.plan<carry = <{"d"}>
// CHECK:         arith.addf{{.*}}dist.plan = #dist.plan<carry = <{"d"}>
func.func @padded_gradient(%sum: tensor<40x5xf32> {dist.sharding = #dist.sharding<@m, [{}, {}], partial = sum{"d"}>},
                           %dy: tensor<8x10x5xf32> {dist.sharding = #dist.sharding<@m, [{"d"}, {}, {}]>})
    -> (tensor<40x5xf32> {dist.sharding = #dist.sharding<@m, [{}, {}], partial = sum{"d"}>}) {
  %0 = nn.reduce sum %dy dims = [0] : tensor<8x10x5xf32> -> tensor<10x5xf32>
  %1 = nn.pad %0 low = [0, 0] high = [30, 0] value = 0.0 : tensor<10x5xf32> -> tensor<40x5xf32>
  %2 = arith.addf %sum, %1 : tensor<40x5xf32>
  return %2 : tensor<40x5xf32>
}
