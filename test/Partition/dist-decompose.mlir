// RUN: cleave-opt %s -split-input-file -dist-decompose | FileCheck %s
// RUN: cleave-opt %s -split-input-file -dist-decompose=axes=other | FileCheck %s --check-prefix=OTHER
// RUN: cleave-opt %s -split-input-file -dist-decompose=plan=auto | FileCheck %s --check-prefix=AUTO
// RUN: %exits 1 cleave-opt %s -split-input-file -dist-decompose=plan=round 2>&1 | FileCheck %s --check-prefix=PLAN
// PLAN: error: unknown plan 'round'; expected auto, ring or gather

// Ring attention on two ranks: each rank sends its tile on, then computes with it.
dist.mesh @m <["r"=2]>
// CHECK-LABEL: func @forward(
// CHECK-SAME:    %[[Q:[a-z0-9]+]]: tensor<1x4x1x1x2xf32>, %[[K:[a-z0-9]+]]: tensor<1x4x1x2xf32>, %[[V:[a-z0-9]+]]: tensor<1x4x1x2xf32>
// CHECK-NOT:     dist.all_gather
// CHECK:         %[[NEXT:.+]]:2 = dist.collective_permute %[[K]], %[[V]] pairs [0, 1, 1, 0] over @m {"r"} purpose activation
// CHECK:         nn.attention %[[Q]], %[[K]], %[[V]] scale
// CHECK-NOT:     dist.collective_permute
// CHECK:         nn.attention %[[Q]], %[[NEXT]]#0, %[[NEXT]]#1 scale
// CHECK:         arith.maximumf
// OTHER-LABEL: func @forward(
// OTHER:         dist.all_gather
func.func @forward(%q: tensor<1x4x1x1x2xf32>, %k: tensor<1x4x1x2xf32>, %v: tensor<1x4x1x2xf32>) -> tensor<1x4x1x1x2xf32> {
  %0:2 = dist.all_gather %k, %v dims [1, 1] over @m {"r"} purpose activation : (tensor<1x4x1x2xf32>, tensor<1x4x1x2xf32>) -> (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>)
  %o, %lse = nn.attention %q, %0#0, %0#1 scale = 0.5 : (tensor<1x4x1x1x2xf32>, tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> (tensor<1x4x1x1x2xf32>, tensor<1x1x1x4xf32>)
  return %o : tensor<1x4x1x1x2xf32>
}

// -----

// The cotangents of keys and values also go around the ring: each rank's first
// part stays local. A gather that another operation reads stays.
dist.mesh @m <["r"=3]>
// CHECK-LABEL: func @backward(
// CHECK:         dist.all_gather %{{.+}} dims [0] over @m {"r"} purpose activation : (tensor<2xf32>) -> tensor<6xf32>
// CHECK:         dist.collective_permute %{{.+}} pairs [0, 1, 1, 2, 2, 0]
// CHECK:         %{{.+}}, %[[K0:.+]], %[[V0:.+]] = nn.attention_grad
// CHECK:         dist.collective_permute %{{.+}} pairs [0, 1, 1, 2, 2, 0]
// CHECK:         %{{.+}}, %[[K1:.+]], %[[V1:.+]] = nn.attention_grad
// CHECK:         %[[ON:.+]]:2 = dist.collective_permute %[[K1]], %[[V1]] pairs [0, 1, 1, 2, 2, 0]
// CHECK:         %{{.+}}, %[[K2:.+]], %[[V2:.+]] = nn.attention_grad
// CHECK:         %[[K3:.+]] = arith.addf %[[ON]]#0, %[[K2]]
// CHECK:         %[[V3:.+]] = arith.addf %[[ON]]#1, %[[V2]]
// CHECK:         %[[HOME:.+]]:2 = dist.collective_permute %[[K3]], %[[V3]] pairs [0, 1, 1, 2, 2, 0]
// CHECK:         arith.addf %[[K0]], %[[HOME]]#0
// CHECK:         arith.addf %[[V0]], %[[HOME]]#1
// CHECK-NOT:     dist.reduce_scatter
func.func @backward(%do: tensor<1x4x1x1x2xf32>, %q: tensor<1x4x1x1x2xf32>, %k: tensor<1x4x1x2xf32>, %v: tensor<1x4x1x2xf32>,
                    %o: tensor<1x4x1x1x2xf32>, %lse: tensor<1x1x1x4xf32>, %x: tensor<2xf32>)
    -> (tensor<1x4x1x1x2xf32>, tensor<1x4x1x2xf32>, tensor<1x4x1x2xf32>, tensor<6xf32>) {
  %0:3 = dist.all_gather %k, %x, %v dims [1, 0, 1] over @m {"r"} purpose activation : (tensor<1x4x1x2xf32>, tensor<2xf32>, tensor<1x4x1x2xf32>) -> (tensor<1x12x1x2xf32>, tensor<6xf32>, tensor<1x12x1x2xf32>)
  %dq, %dk, %dv = nn.attention_grad %do, %q, %0#0, %0#2, %o, %lse scale = 0.5 : (tensor<1x4x1x1x2xf32>, tensor<1x4x1x1x2xf32>, tensor<1x12x1x2xf32>, tensor<1x12x1x2xf32>, tensor<1x4x1x1x2xf32>, tensor<1x1x1x4xf32>) -> (tensor<1x4x1x1x2xf32>, tensor<1x12x1x2xf32>, tensor<1x12x1x2xf32>)
  %1:2 = dist.reduce_scatter sum %dk, %dv dims [1, 1] over @m {"r"} purpose activation : (tensor<1x12x1x2xf32>, tensor<1x12x1x2xf32>) -> (tensor<1x4x1x2xf32>, tensor<1x4x1x2xf32>)
  return %dq, %1#0, %1#1, %0#1 : tensor<1x4x1x1x2xf32>, tensor<1x4x1x2xf32>, tensor<1x4x1x2xf32>, tensor<6xf32>
}

// -----

// Seven keys on four ranks: the last tile ends in padding, which is cleared and
// masked. Each round reads the positions of the tile's owner.
dist.mesh @m <["r"=4]>
// CHECK-LABEL: func @padded(
// CHECK-SAME:    %[[P:[a-z0-9]+]]: tensor<7xi64>
// CHECK-COUNT-2: arith.select {{.*}} {dist.pad_mask}
// CHECK:         %[[FILLED:.+]] = nn.pad %[[P]] low = [0] high = [1]
// CHECK:         %[[PARTS:.+]] = nn.reshape %[[FILLED]] : tensor<8xi64> -> tensor<4x2xi64>
// CHECK:         %[[MINE:.+]] = nn.gather %[[PARTS]], %{{.+}} dim = 0
// CHECK:         nn.attention %{{.+}} positions(%{{.+}}, %[[MINE]]) key_mask(
func.func @padded(%q: tensor<1x2x1x1x2xf32>, %k: tensor<1x2x1x2xf32>, %v: tensor<1x2x1x2xf32>, %qp: tensor<2xi64>, %kp: tensor<7xi64>) -> tensor<1x2x1x1x2xf32> {
  %0 = dist.all_gather %k dims [1] over @m {"r"} purpose activation : (tensor<1x2x1x2xf32>) -> tensor<1x8x1x2xf32>
  %1 = nn.slice %0 [0, 0, 0, 0] [1, 7, 1, 2] [1, 1, 1, 1] : tensor<1x8x1x2xf32> -> tensor<1x7x1x2xf32>
  %2 = dist.all_gather %v dims [1] over @m {"r"} purpose activation : (tensor<1x2x1x2xf32>) -> tensor<1x8x1x2xf32>
  %3 = nn.slice %2 [0, 0, 0, 0] [1, 7, 1, 2] [1, 1, 1, 1] : tensor<1x8x1x2xf32> -> tensor<1x7x1x2xf32>
  %o, %lse = nn.attention %q, %1, %3 positions(%qp, %kp) scale = 0.5 causal : (tensor<1x2x1x1x2xf32>, tensor<1x7x1x2xf32>, tensor<1x7x1x2xf32>, tensor<2xi64>, tensor<7xi64>) -> (tensor<1x2x1x1x2xf32>, tensor<1x1x1x2xf32>)
  return %o : tensor<1x2x1x1x2xf32>
}

// -----

// A window of three positions reaches into the previous tile and no farther.
dist.mesh @m <["r"=8]>
// CHECK-LABEL: func @window(
// CHECK-COUNT-2: nn.attention
// CHECK-NOT:     nn.attention
func.func @window(%q: tensor<1x2x1x1x2xf32>, %k: tensor<1x2x1x2xf32>, %v: tensor<1x2x1x2xf32>) -> tensor<1x2x1x1x2xf32> {
  %own = nn.iota dim = 0 : tensor<2xi64>
  %offset = dist.tile_offset tile 2 over @m {"r"} : tensor<i64>
  %spread = nn.broadcast %offset dims = [] : tensor<i64> -> tensor<2xi64>
  %qp = arith.addi %own, %spread : tensor<2xi64>
  %kp = nn.iota dim = 0 : tensor<16xi64>
  %0 = dist.all_gather %k dims [1] over @m {"r"} purpose activation : (tensor<1x2x1x2xf32>) -> tensor<1x16x1x2xf32>
  %1 = dist.all_gather %v dims [1] over @m {"r"} purpose activation : (tensor<1x2x1x2xf32>) -> tensor<1x16x1x2xf32>
  %o, %lse = nn.attention %q, %0, %1 positions(%qp, %kp) scale = 0.5 causal window = 3 : (tensor<1x2x1x1x2xf32>, tensor<1x16x1x2xf32>, tensor<1x16x1x2xf32>, tensor<2xi64>, tensor<16xi64>) -> (tensor<1x2x1x1x2xf32>, tensor<1x1x1x2xf32>)
  return %o : tensor<1x2x1x1x2xf32>
}

// -----

// Keys gathered along another dimension stay gathered.
dist.mesh @m <["r"=2]>
// CHECK-LABEL: func @heads(
// CHECK:         dist.all_gather
// CHECK-NOT:     dist.collective_permute
// CHECK:         return
func.func @heads(%q: tensor<1x4x2x1x2xf32>, %k: tensor<1x4x1x2xf32>, %v: tensor<1x4x1x2xf32>) -> tensor<1x4x2x1x2xf32> {
  %0:2 = dist.all_gather %k, %v dims [2, 2] over @m {"r"} purpose activation : (tensor<1x4x1x2xf32>, tensor<1x4x1x2xf32>) -> (tensor<1x4x2x2xf32>, tensor<1x4x2x2xf32>)
  %o, %lse = nn.attention %q, %0#0, %0#1 scale = 0.5 : (tensor<1x4x2x1x2xf32>, tensor<1x4x2x2xf32>, tensor<1x4x2x2xf32>) -> (tensor<1x4x2x1x2xf32>, tensor<1x2x1x4xf32>)
  return %o : tensor<1x4x2x1x2xf32>
}

// -----

// The choice of `auto`: with many query heads per KV head, keys and values of few
// ranks are small, so latency dominates and they are gathered. With one KV head
// per query head the ring is used.
dist.mesh @m <["r"=8]>
// AUTO-LABEL: func @few_keys(
// AUTO:         dist.all_gather
// AUTO-NOT:     dist.collective_permute
// AUTO:         return
func.func @few_keys(%q: tensor<1x4x1x16x2xf32>, %k: tensor<1x4x1x2xf32>, %v: tensor<1x4x1x2xf32>) -> tensor<1x4x1x16x2xf32> {
  %0:2 = dist.all_gather %k, %v dims [1, 1] over @m {"r"} purpose activation : (tensor<1x4x1x2xf32>, tensor<1x4x1x2xf32>) -> (tensor<1x32x1x2xf32>, tensor<1x32x1x2xf32>)
  %o, %lse = nn.attention %q, %0#0, %0#1 scale = 0.5 : (tensor<1x4x1x16x2xf32>, tensor<1x32x1x2xf32>, tensor<1x32x1x2xf32>) -> (tensor<1x4x1x16x2xf32>, tensor<1x1x16x4xf32>)
  return %o : tensor<1x4x1x16x2xf32>
}

// -----

dist.mesh @m <["r"=2]>
// AUTO-LABEL: func @many_keys(
// AUTO-NOT:     dist.all_gather
// AUTO:         dist.collective_permute
// AUTO:         return
func.func @many_keys(%q: tensor<1x1024x8x1x64xf32>, %k: tensor<1x1024x8x64xf32>, %v: tensor<1x1024x8x64xf32>) -> tensor<1x1024x8x1x64xf32> {
  %0:2 = dist.all_gather %k, %v dims [1, 1] over @m {"r"} purpose activation : (tensor<1x1024x8x64xf32>, tensor<1x1024x8x64xf32>) -> (tensor<1x2048x8x64xf32>, tensor<1x2048x8x64xf32>)
  %o, %lse = nn.attention %q, %0#0, %0#1 scale = 0.5 : (tensor<1x1024x8x1x64xf32>, tensor<1x2048x8x64xf32>, tensor<1x2048x8x64xf32>) -> (tensor<1x1024x8x1x64xf32>, tensor<1x8x1x1024xf32>)
  return %o : tensor<1x1024x8x1x64xf32>
}
