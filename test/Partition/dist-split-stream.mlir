// RUN: cleave-opt %s -split-input-file -dist-split-stream=always | FileCheck %s
// RUN: cleave-opt %s -split-input-file -dist-split-stream | FileCheck %s --check-prefix=AUTO

// Each rank attends to its own keys; results are combined with their log-sum-exps.
dist.mesh @m <["r"=2]>
// CHECK-LABEL: func @forward(
// CHECK-SAME:    %[[Q:[a-z0-9]+]]: tensor<1x4x1x1x2xf32>, %[[K:[a-z0-9]+]]: tensor<1x4x1x2xf32>
// CHECK-NOT:     dist.all_gather
// CHECK:         %[[O:.+]], %[[LSE:.+]] = nn.attention %[[Q]], %[[K]], %[[K]] scale
// CHECK:         dist.all_reduce max %[[LSE]] over @m {"r"} purpose activation
// CHECK:         %[[SUMS:.+]]:2 = dist.all_reduce sum %{{.+}}, %{{.+}} over @m {"r"}
// CHECK:         %[[WHOLE:.+]] = arith.divf %[[SUMS]]#0
// CHECK:         return %[[WHOLE]]
// Four queries and eight keys of one head: the second message makes this slower, so keys are gathered.
// AUTO-LABEL: func @forward(
// AUTO:         dist.all_gather
func.func @forward(%q: tensor<1x4x1x1x2xf32>,
                   %k: tensor<1x4x1x2xf32> {dist.sharding = #dist.sharding<@m, [{}, {"r"}, {}, {}]>}) -> tensor<1x4x1x1x2xf32> {
  %0 = dist.all_gather %k dims [1] over @m {"r"} purpose activation : (tensor<1x4x1x2xf32>) -> tensor<1x8x1x2xf32>
  %o, %lse = nn.attention %q, %0, %0 scale = 0.5 : (tensor<1x4x1x1x2xf32>, tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> (tensor<1x4x1x1x2xf32>, tensor<1x1x1x4xf32>)
  return %o : tensor<1x4x1x1x2xf32>
}

// -----

// With one query and many keys, keys stay split even in auto mode.
dist.mesh @m <["r"=2]>
// AUTO-LABEL: func @decode(
// AUTO-NOT:     dist.all_gather
// AUTO:         dist.all_reduce max
func.func @decode(%q: tensor<1x1x8x1x64xf32>,
                  %k: tensor<1x65536x8x64xf32> {dist.sharding = #dist.sharding<@m, [{}, {"r"}, {}, {}]>}) -> tensor<1x1x8x1x64xf32> {
  %0 = dist.all_gather %k dims [1] over @m {"r"} purpose activation : (tensor<1x65536x8x64xf32>) -> tensor<1x131072x8x64xf32>
  %o, %lse = nn.attention %q, %0, %0 scale = 0.5 : (tensor<1x1x8x1x64xf32>, tensor<1x131072x8x64xf32>, tensor<1x131072x8x64xf32>) -> (tensor<1x1x8x1x64xf32>, tensor<1x8x1x1xf32>)
  return %o : tensor<1x1x8x1x64xf32>
}

// -----

// Each rank has its own queries, so it needs all keys.
dist.mesh @m <["r"=2]>
// CHECK-LABEL: func @own_queries(
// CHECK:         dist.all_gather
// CHECK-NOT:     dist.all_reduce
func.func @own_queries(%q: tensor<1x4x1x1x2xf32> {dist.sharding = #dist.sharding<@m, [{}, {"r"}, {}, {}, {}]>},
                       %k: tensor<1x4x1x2xf32> {dist.sharding = #dist.sharding<@m, [{}, {"r"}, {}, {}]>})
    -> (tensor<1x4x1x1x2xf32> {dist.sharding = #dist.sharding<@m, [{}, {"r"}, {}, {}, {}]>}) {
  %0 = dist.all_gather %k dims [1] over @m {"r"} purpose activation : (tensor<1x4x1x2xf32>) -> tensor<1x8x1x2xf32>
  %o, %lse = nn.attention %q, %0, %0 scale = 0.5 : (tensor<1x4x1x1x2xf32>, tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> (tensor<1x4x1x1x2xf32>, tensor<1x1x1x4xf32>)
  return %o : tensor<1x4x1x1x2xf32>
}

// -----

// Cotangents of keys and values stay local; those of queries are summed over ranks.
dist.mesh @m <["r"=2]>
// CHECK-LABEL: func @backward(
// CHECK:         %[[DQ:.+]], %[[DK:.+]], %[[DV:.+]] = nn.attention_grad
// CHECK:         %[[SUM:.+]] = dist.all_reduce sum %[[DQ]] over @m {"r"} purpose activation
// CHECK-NOT:     dist.slice
// CHECK:         return %[[SUM]], %[[DK]], %[[DV]]
func.func @backward(%c: tensor<1x4x1x1x2xf32>, %q: tensor<1x4x1x1x2xf32>,
                    %k: tensor<1x4x1x2xf32> {dist.sharding = #dist.sharding<@m, [{}, {"r"}, {}, {}]>},
                    %o: tensor<1x4x1x1x2xf32>, %lse: tensor<1x1x1x4xf32>)
    -> (tensor<1x4x1x1x2xf32>, tensor<1x4x1x2xf32> {dist.sharding = #dist.sharding<@m, [{}, {"r"}, {}, {}]>},
        tensor<1x4x1x2xf32> {dist.sharding = #dist.sharding<@m, [{}, {"r"}, {}, {}]>}) {
  %0 = dist.all_gather %k dims [1] over @m {"r"} purpose activation : (tensor<1x4x1x2xf32>) -> tensor<1x8x1x2xf32>
  %dq, %dk, %dv = nn.attention_grad %c, %q, %0, %0, %o, %lse scale = 0.5 : (tensor<1x4x1x1x2xf32>, tensor<1x4x1x1x2xf32>, tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>, tensor<1x4x1x1x2xf32>, tensor<1x1x1x4xf32>) -> (tensor<1x4x1x1x2xf32>, tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>)
  %1 = dist.slice %dk dim 1 over @m {"r"} : tensor<1x8x1x2xf32> -> tensor<1x4x1x2xf32>
  %2 = dist.slice %dv dim 1 over @m {"r"} : tensor<1x8x1x2xf32> -> tensor<1x4x1x2xf32>
  return %dq, %1, %2 : tensor<1x4x1x1x2xf32>, tensor<1x4x1x2xf32>, tensor<1x4x1x2xf32>
}
