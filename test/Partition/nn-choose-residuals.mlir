// RUN: cleave-opt %s -split-input-file -nn-choose-residuals | FileCheck %s
// RUN: cleave-opt %s -split-input-file -nn-choose-residuals=keep-parameters=d | FileCheck %s --check-prefix=KEEP
// RUN: cleave-opt %s -split-input-file -nn-choose-residuals=keep-activations=t | FileCheck %s --check-prefix=SAVED

// A weight that both passes read is gathered once per pass, the bias once in all,
// each directly before its first reader.
dist.mesh @m <["d"=2]>
// CHECK-LABEL: func @loss_grad
// CHECK-SAME:    (%[[W:.+]]: tensor<3x8xf32> {{.+}}, %[[B:.+]]: tensor<4xf32> {{.+}}, %[[X:.+]]: tensor<4x6xf32>
// CHECK-NEXT:    %[[EXP:.+]] = math.exp %[[X]]
// CHECK-NEXT:    %[[W1:.+]] = dist.all_gather %[[W]] dims [0]
// CHECK-NEXT:    %[[Y:.+]] = nn.einsum "bh,hf->bf" %[[EXP]], %[[W1]]
// CHECK-NEXT:    %[[B1:.+]] = dist.all_gather %[[B]] dims [0]
// CHECK-NEXT:    %[[WIDE:.+]] = nn.broadcast %[[B1]]
// CHECK-NEXT:    arith.addf %[[Y]], %[[WIDE]]
// CHECK:         %[[DY:.+]] = math.sin
// CHECK-NEXT:    %[[AGAIN:.+]] = nn.rematerialize %[[W]] after %[[DY]]
// CHECK-NEXT:    %[[W2:.+]] = dist.all_gather %[[AGAIN]] dims [0]
// CHECK-NEXT:    nn.einsum "bf,hf->bh" %[[DY]], %[[W2]]
// CHECK-NOT:     dist.all_gather
// KEEP-LABEL: func @loss_grad
// KEEP-COUNT-2: dist.all_gather
// KEEP-NOT:     dist.all_gather
// KEEP:         return
func.func @loss_grad(%w: tensor<3x8xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                     %b: tensor<4xf32> {nn.name = "b", nn.role = #nn.role<parameter>},
                     %x: tensor<4x6xf32> {nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<4x8xf32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<4x6xf32> {nn.name = "w", nn.role = #nn.role<gradient>}) {
  %0 = dist.all_gather %w dims [0] over @m {"d"} purpose parameter : (tensor<3x8xf32>) -> tensor<6x8xf32>
  %1 = dist.all_gather %b dims [0] over @m {"d"} purpose parameter : (tensor<4xf32>) -> tensor<8xf32>
  %2 = math.exp %x : tensor<4x6xf32>
  %3 = nn.einsum "bh,hf->bf" %2, %0 : tensor<4x6xf32>, tensor<6x8xf32> -> tensor<4x8xf32>
  %4 = nn.broadcast %1 dims = [1] : tensor<8xf32> -> tensor<4x8xf32>
  %5 = arith.addf %3, %4 : tensor<4x8xf32>
  %6 = nn.save %5 : tensor<4x8xf32>
  %7 = math.cos %6 : tensor<4x8xf32>
  %8 = math.sin %7 : tensor<4x8xf32>
  %9 = nn.einsum "bf,hf->bh" %8, %0 : tensor<4x8xf32>, tensor<6x8xf32> -> tensor<4x6xf32>
  return %5, %9 : tensor<4x8xf32>, tensor<4x6xf32>
}

// -----

// A table tied at both ends of the model: the last readers of the forward pass are
// next to the first readers of the backward pass, and share a gather with them.
dist.mesh @m <["d"=2]>
// CHECK-LABEL: func @tied
// CHECK:         dist.all_gather %{{.+}} dims [0]
// CHECK-NEXT:    math.exp
// CHECK:         nn.rematerialize
// CHECK-NEXT:    %[[SECOND:.+]] = dist.all_gather
// CHECK-NEXT:    arith.mulf %{{.+}}, %[[SECOND]]
// CHECK-NEXT:    nn.save
// CHECK-NEXT:    arith.mulf %{{.+}}, %[[SECOND]]
// CHECK-NOT:     dist.all_gather
// CHECK:         return
func.func @tied(%w: tensor<4xf32> {nn.name = "w", nn.role = #nn.role<parameter>})
    -> (tensor<8xf32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<8xf32> {nn.name = "w", nn.role = #nn.role<gradient>}) {
  %0 = dist.all_gather %w dims [0] over @m {"d"} purpose parameter : (tensor<4xf32>) -> tensor<8xf32>
  %1 = math.exp %0 : tensor<8xf32>
  %2 = math.sin %1 : tensor<8xf32>
  %3 = math.cos %2 : tensor<8xf32>
  %4 = math.sin %3 : tensor<8xf32>
  %5 = arith.mulf %4, %0 : tensor<8xf32>
  %6 = nn.save %5 : tensor<8xf32>
  %7 = arith.mulf %6, %0 : tensor<8xf32>
  return %5, %7 : tensor<8xf32>, tensor<8xf32>
}

// -----

// The slice that removes padding after the gather is also recomputed.
dist.mesh @m <["d"=2]>
// CHECK-LABEL: func @padded
// CHECK:         %[[W1:.+]] = dist.all_gather
// CHECK-NEXT:    %[[CUT1:.+]] = nn.slice %[[W1]]
// CHECK-NEXT:    math.exp %[[CUT1]]
// CHECK:         %[[W2:.+]] = dist.all_gather
// CHECK-NEXT:    %[[CUT2:.+]] = nn.slice %[[W2]]
// CHECK-NEXT:    arith.mulf %{{.+}}, %[[CUT2]]
// CHECK:         return
func.func @padded(%w: tensor<4xf32> {nn.name = "w", nn.role = #nn.role<parameter>})
    -> (tensor<7xf32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<7xf32> {nn.name = "w", nn.role = #nn.role<gradient>}) {
  %0 = dist.all_gather %w dims [0] over @m {"d"} purpose parameter : (tensor<4xf32>) -> tensor<8xf32>
  %1 = nn.slice %0 [0] [7] [1] : tensor<8xf32> -> tensor<7xf32>
  %2 = math.exp %1 : tensor<7xf32>
  %3 = nn.save %2 : tensor<7xf32>
  %4 = math.sin %3 : tensor<7xf32>
  %5 = arith.mulf %4, %1 : tensor<7xf32>
  return %2, %5 : tensor<7xf32>, tensor<7xf32>
}

// -----

// Depending on the options, the activation's tile or the gathered activation is saved.
dist.mesh @m <["t"=2]>
// CHECK-LABEL: func @activation
// CHECK:         %[[TILE:.+]] = nn.save %{{.+}} : tensor<4xf32>
// CHECK:         dist.all_gather %[[TILE]]
// SAVED-LABEL: func @activation
// SAVED:         %[[WHOLE:.+]] = dist.all_gather
// SAVED-NEXT:    %[[KEPT:.+]] = nn.save %[[WHOLE]] : tensor<8xf32>
// SAVED-NOT:     dist.all_gather
// SAVED:         math.cos %[[KEPT]]
func.func @activation(%x: tensor<4xf32> {nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<8xf32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<8xf32> {nn.name = "w", nn.role = #nn.role<gradient>}) {
  %0 = math.exp %x : tensor<4xf32>
  %1 = nn.save %0 : tensor<4xf32>
  %2 = dist.all_gather %0 dims [0] over @m {"t"} purpose activation : (tensor<4xf32>) -> tensor<8xf32>
  %3 = math.sin %2 : tensor<8xf32>
  %4 = dist.all_gather %1 dims [0] over @m {"t"} purpose activation : (tensor<4xf32>) -> tensor<8xf32>
  %5 = math.cos %4 : tensor<8xf32>
  return %3, %5 : tensor<8xf32>, tensor<8xf32>
}

// -----

// Gathered over two axes: the value gathered over "d" is saved, and only the
// gather over "t" is recomputed from it.
dist.mesh @m <["d"=2, "t"=2]>
// CHECK-LABEL: func @two_axes
// CHECK-COUNT-4: dist.all_gather
// CHECK-NOT:     dist.all_gather
// CHECK:         return
// KEEP-LABEL: func @two_axes
// KEEP:         %[[KEPT:.+]] = dist.all_gather %{{.+}} dims [0] over @m {"d"}
// KEEP-NEXT:    dist.all_gather %[[KEPT]] dims [0] over @m {"t"}
// KEEP:         %[[AGAIN:.+]] = nn.rematerialize %[[KEPT]]
// KEEP-NEXT:    dist.all_gather %[[AGAIN]] dims [0] over @m {"t"}
// KEEP-NOT:     dist.all_gather
// KEEP:         return
func.func @two_axes(%w: tensor<2x8xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                    %x: tensor<4x8xf32> {nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<4x8xf32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<4x8xf32> {nn.name = "w", nn.role = #nn.role<gradient>}) {
  %0 = dist.all_gather %w dims [0] over @m {"d"} purpose parameter : (tensor<2x8xf32>) -> tensor<4x8xf32>
  %1 = dist.all_gather %0 dims [0] over @m {"t"} purpose parameter : (tensor<4x8xf32>) -> tensor<8x8xf32>
  %2 = nn.einsum "bh,hf->bf" %x, %1 : tensor<4x8xf32>, tensor<8x8xf32> -> tensor<4x8xf32>
  %3 = nn.save %2 : tensor<4x8xf32>
  %4 = math.cos %3 : tensor<4x8xf32>
  %5 = math.sin %4 : tensor<4x8xf32>
  %6 = nn.einsum "bf,hf->bh" %5, %1 : tensor<4x8xf32>, tensor<8x8xf32> -> tensor<4x8xf32>
  return %2, %6 : tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// A reader inside a loop: the parameter is gathered once before the loop.
dist.mesh @m <["d"=2]>
// CHECK-LABEL: func.func @in_a_loop
// CHECK:         dist.all_gather
// CHECK:         scf.for
// CHECK-NOT:       dist.all_gather
// CHECK:           arith.mulf
// CHECK:         arith.addf
func.func @in_a_loop(%w: tensor<2xf32> {nn.name = "w", nn.role = #nn.role<parameter>, dist.sharding = #dist.sharding<@m, [{"d"}]>}, %x: tensor<4xf32>) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c3 = arith.constant 3 : index
  %c1 = arith.constant 1 : index
  %g = dist.all_gather %w dims [0] over @m {"d"} purpose parameter : (tensor<2xf32>) -> tensor<4xf32>
  %0 = scf.for %i = %c0 to %c3 step %c1 iter_args(%h = %x) -> (tensor<4xf32>) {
    %1 = arith.mulf %h, %g : tensor<4xf32>
    scf.yield %1 : tensor<4xf32>
  }
  %2 = arith.addf %0, %g : tensor<4xf32>
  return %2 : tensor<4xf32>
}
