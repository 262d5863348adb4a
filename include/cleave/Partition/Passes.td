//===- Passes.td - from shardings to per-rank programs ----------*- tablegen -*-===//

#ifndef CLEAVE_PARTITION_PASSES_TD
#define CLEAVE_PARTITION_PASSES_TD

include "mlir/Pass/PassBase.td"

def DistPropagatePass : Pass<"dist-propagate", "::mlir::ModuleOp"> {
  let summary = "Propagate shardings to all values, to a fixed point";
  let description = [{
    Before: some arguments, results and `dist.constrain` operations carry shardings. After: every
    argument, result and operation has a closed `dist.sharding`. Ports of the same name and role have the
    same sharding in all functions.

    The pass works on the factors of sharding rules (ShardingRule.h). If a factor is sharded in one tensor
    of an operation, it becomes sharded in the operation's other tensors, as far as their dimensions are
    open and do not use the axis already. Elementwise operations propagate first, then operations that
    move elements, then contractions. Shardings of priority 0 propagate before those of priority 1. If two
    tensors disagree, each keeps its own sharding; the one that makes the operation's tensors move the
    fewest bytes propagates further. The result does not depend on the order of operations. Constants and
    index grids take no part: they are emitted again for each layout. `dist-plan-ops` decides which axes
    are gathered or left partial.

    Before:
    ```mlir
    dist.mesh @m <["data"=2]>
    func.func @f(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@m, [{"data"}, {?} ]>}) -> tensor<4x6xf32> {
      %0 = math.exp %x : tensor<4x6xf32>
      return %0 : tensor<4x6xf32>
    }
    ```

    After:
    ```mlir
    dist.mesh @m <["data"=2]>
    func.func @f(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@m, [{"data"}, {} ]>})
        -> (tensor<4x6xf32> {dist.sharding = #dist.sharding<@m, [{"data"}, {} ]>}) {
      %0 = math.exp %x {dist.sharding = [#dist.sharding<@m, [{"data"}, {} ]>]} : tensor<4x6xf32>
      return %0 : tensor<4x6xf32>
    }
    ```
  }];
  let options = [
    Option<"remarks", "remarks", "bool", "false",
           "Report for every sharded dimension where its sharding came from.">
  ];
  // The rules of arith and math come with nn.
  let dependentDialects = ["::cleave::dist::DistDialect", "::cleave::nn::NNDialect"];
}

def DistSplitHandoversPass : Pass<"dist-split-handovers", "::mlir::ModuleOp"> {
  let summary = "Send values between pipeline stages in tiles where that is cheaper";
  let description = [{
    Runs on a stage of a pipeline, between `dist-propagate` and `dist-plan-ops`. Activations and
    cotangents cross stages. If such a value is replicated over several ranks of a stage, each rank would
    send all of it. Instead, each rank can send a tile, and the receivers gather the tiles. The pass
    chooses tiles where the model of docs/cluster.md says that this takes less time: the tile over the
    link between the stages plus the gather over the links of its axes, against the unsharded value over
    the link between the stages. Tiles never need padding; the outermost dimension that divides evenly is
    sharded.

    After: the argument or result has the sharding of the tiles, and `pipe.inside` is its sharding inside
    the stage. One constraint gathers an argument for all its readers. A value that the stage only passes
    on, or adds to a result in tiles, stays in tiles. A result without other readers is computed in tiles,
    so that its all-reduce can become a reduce-scatter. Both stages make the same choice. A remark reports
    each result that is sent in tiles.

    Before, with slow links between the stages:
    ```mlir
    dist.mesh @m <["t"=2]>
    func.func @loss_grad(%x: tensor<4x6xf32> {nn.name = "cut.0.0", nn.role = #nn.role<activation>,
                                              dist.sharding = #dist.sharding<@m, [{}, {} ]>})
        -> (tensor<4x6xf32> {nn.name = "cut.1.0", nn.role = #nn.role<activation>,
                             dist.sharding = #dist.sharding<@m, [{}, {} ]>}) {
      %0 = math.exp %x {dist.sharding = [#dist.sharding<@m, [{}, {} ]>]} : tensor<4x6xf32>
      return %0 : tensor<4x6xf32>
    }
    ```

    After, with `previous=inter`:
    ```mlir
    dist.mesh @m <["t"=2]>
    func.func @loss_grad(%x: tensor<4x6xf32> {nn.name = "cut.0.0", nn.role = #nn.role<activation>,
                                              dist.sharding = #dist.sharding<@m, [{"t"}, {} ]>,
                                              pipe.inside = #dist.sharding<@m, [{}, {} ]>})
        -> (tensor<4x6xf32> {nn.name = "cut.1.0", nn.role = #nn.role<activation>,
                             dist.sharding = #dist.sharding<@m, [{}, {} ]>}) {
      %0 = dist.constrain %x <@m, [{}, {} ]> {dist.sharding = [#dist.sharding<@m, [{}, {} ]>]} : tensor<4x6xf32>
      %1 = math.exp %0 {dist.sharding = [#dist.sharding<@m, [{}, {} ]>]} : tensor<4x6xf32>
      return %1 : tensor<4x6xf32>
    }
    ```
  }];
  let options = [
    Option<"previous", "previous", "std::string", "\"\"",
           "Class of the link to the previous stage; empty: that stage is on the same rank.">,
    Option<"next", "next", "std::string", "\"\"",
           "Class of the link to the next stage; empty: that stage is on the same rank.">,
    Option<"cluster", "cluster", "std::string", "\"\"",
           "A cluster.toml with the links; none: defaults.">
  ];
  let dependentDialects = ["::cleave::dist::DistDialect", "::cleave::nn::NNDialect"];
}

def DistPlanOpsPass : Pass<"dist-plan-ops", "::mlir::ModuleOp"> {
  let summary = "Choose the mesh axes of the factors of each operation";
  let description = [{
    Before: every value has a sharding. After: every operation has a `dist.plan`. Its `factors` lists the
    axes of each factor of the operation's sharding rule; they determine the layouts that the operands
    must have and the layouts in which results are computed. `carry` lists the axes over which the
    operation reads partial operands and gives partial results; the `dist.sharding` of such a result says
    so.

    If the tensors of an operation agree, there is one choice. Otherwise the pass weighs all assignments
    of axes to factors: the bytes sent to reshard operands and results, against the compute that is
    replicated. Partial sums pass through linear operations if nothing else reads them: a sum of several
    is reduced once.

    Before:
    ```mlir
    %0 = nn.einsum "bh,hf->bf" %x, %w {dist.sharding = [#dist.sharding<@m, [{}, {} ]>]} : tensor<4x6xf32>, tensor<6x8xf32> -> tensor<4x8xf32>
    ```

    After, with h split by "tensor" in both operands:
    ```mlir
    %0 = nn.einsum "bh,hf->bf" %x, %w {
      dist.plan = #dist.plan<carry = <{}>, factors = [#dist.axes<{}>, #dist.axes<{"tensor"}>, #dist.axes<{}>]>,
      dist.sharding = [#dist.sharding<@m, [{}, {} ], partial = sum{"tensor"}>]} : tensor<4x6xf32>, tensor<6x8xf32> -> tensor<4x8xf32>
    ```
  }];
  let options = [
    Option<"remarks", "remarks", "bool", "false",
           "Report for every partial result (sum, maximum, minimum) why it is partial, "
           "and where it is reduced.">,
    Option<"cluster", "cluster", "std::string", "\"\"",
           "A cluster.toml with the links that reshards are planned for; none: defaults.">
  ];
  // The rules of arith and math come with nn.
  let dependentDialects = ["::cleave::dist::DistDialect", "::cleave::nn::NNDialect"];
}

def DistPartitionPass : Pass<"dist-partition", "::mlir::ModuleOp"> {
  let summary = "Rewrite functions into per-rank (SPMD) programs";
  let description = [{
    Before: every operation has a plan and a sharding, and values have their global shapes. After: values
    have the shapes of tiles, and every movement of data is an explicit collective. Arguments and results
    keep `dist.sharding` and gain `dist.global_type`, the type of the unsharded tensor. `dist.constrain`
    is gone.

    Each operation emits its own per-rank form (ShardingRuleInterface::planLocal). If a reader needs
    another layout than its operand has, a reshard precedes it; readers that need the same layout share
    the reshard. A search over layouts plans reshards under the cost model of docs/cluster.md. A remark
    reports each gather of an activation that no constraint asked for, with its size and source.

    Before:
    ```mlir
    dist.mesh @m <["data"=2]>
    func.func @f(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@m, [{"data"}, {} ]>})
        -> (tensor<4x6xf32> {dist.sharding = #dist.sharding<@m, [{}, {} ]>}) {
      return %x : tensor<4x6xf32>
    }
    ```

    After:
    ```mlir
    dist.mesh @m <["data"=2]>
    func.func @f(%x: tensor<2x6xf32> {dist.global_type = tensor<4x6xf32>, dist.sharding = #dist.sharding<@m, [{"data"}, {} ]>})
        -> (tensor<4x6xf32> {dist.global_type = tensor<4x6xf32>, dist.sharding = #dist.sharding<@m, [{}, {} ]>}) {
      %0 = dist.all_gather %x dims [0] over @m {"data"} purpose activation : (tensor<2x6xf32>) -> tensor<4x6xf32>
      return %0 : tensor<4x6xf32>
    }
    ```
  }];
  let options = [
    Option<"cluster", "cluster", "std::string", "\"\"",
           "A cluster.toml with the links that reshards are planned for; none: defaults.">,
    Option<"largerTiles", "larger-tiles", "bool", "false",
           "Allow reshards through layouts whose tiles are larger than those of source and target.">
  ];
  let dependentDialects = ["::cleave::dist::DistDialect", "::cleave::nn::NNDialect",
                           "::mlir::arith::ArithDialect", "::mlir::math::MathDialect"];
}

def DistVerifyVariancePass : Pass<"dist-verify-variance", "::mlir::ModuleOp"> {
  let summary = "Prove that a per-rank program treats partial, sharded and replicated values correctly";
  let description = [{
    The analysis knows for every value and mesh axis whether the ranks along the axis hold the same value,
    tiles of one dimension, partial sums (or candidates of a maximum or minimum), or simply different
    values. If several axes shard one dimension, it knows their order. It runs after `dist-partition` and
    after passes that change communication, and changes nothing.

    Errors: a partial value is read by an operation that is not linear in it, or added to a value that is
    not partial; a reduction over an axis over which its operand is not partial, or is partial by another
    kind of reduction; operands sharded on different dimensions by one axis, or by axes in different
    orders; tiles combined with an unsharded value; tiles gathered in another order than they were sliced;
    a result that differs from its `dist.sharding`.

    For each dimension that tiles do not divide evenly, the analysis knows the global size, the axes that
    number the tiles, and the value of the padding in the last tiles. Errors: padding that is combined
    (summed, searched for a maximum, read by index, read as part of a row) and is not the identity of that
    combination; padding that a concatenation, a pad, a reshape or a reversal would put between elements;
    a mask of another size, tile, dimension or order of axes than the tensor has; a mask where there is no
    padding; two global sizes in one operation, at a result, or between two iterations of a loop.

    Not proved, but found by execution (`cleave check`): that a window begins where it should and that its
    `whole` is the size of the result computed from it; that a collective-permute sends each tile to the
    rank that needs it, unless padding gives a mistake away; that values computed from a tile's offset
    (other than masks and indices into padded tables) are right; and whether a constant is a tile or
    unsharded.

    Nothing is claimed of padding where the program does not tell the size: for scatters into a table,
    reshapes of tiles of one element, dimensions that merge such tiles with others, a `dist.slice` whose
    tiles do not nest in the tiles that it slices, arguments without `dist.global_type`, and values
    computed from one of these. The value of padding becomes unknown when it is computed with, and when a
    loop or a branch carries it. If one operand of a product is masked, the other one must be, too, where
    it is known to be padded; otherwise its elements are assumed finite.

    Before and After are the same. With the first dimension of %x split:
    ```mlir
    // Refused: exp of partial sums.
    %0 = nn.reduce sum %x dims = [0] : tensor<2x6xf32> -> tensor<6xf32>
    %1 = math.exp %0 : tensor<6xf32>
    ```
  }];
  // The rules of arith and math come with nn.
  let dependentDialects = ["::cleave::nn::NNDialect"];
}

def DistCombinePass : Pass<"dist-combine", "::mlir::ModuleOp"> {
  let summary = "Shrink collectives, and remove redundant ones";
  let description = [{
    Runs on per-rank programs, in loops and branches, too. An all-reduce of which a rank reads only its
    own tile becomes a reduce-scatter. A gather of which a rank reads only its own tile is removed, and so
    is a slice into tiles that are gathered again. Equal collectives of a block are merged. That does not
    keep a value gathered in the forward pass alive for the backward pass: the gather there has another
    operand (a saved value).

    Before:
    ```mlir
    %0 = dist.all_reduce sum %a over @m {"data"} purpose gradient : tensor<4xf32>
    %1 = dist.slice %0 dim 0 over @m {"data"} : tensor<4xf32> -> tensor<2xf32>
    ```

    After:
    ```mlir
    %1 = dist.reduce_scatter sum %a dims [0] over @m {"data"} purpose gradient : (tensor<4xf32>) -> tensor<2xf32>
    ```
  }];
  let dependentDialects = ["::cleave::dist::DistDialect"];
}

def DistSplitStreamPass : Pass<"dist-split-stream", "::mlir::ModuleOp"> {
  let summary = "Compute on the local tile of a dimension instead of gathering it (split-KV)";
  let description = [{
    Runs on per-rank programs that `dist-verify-variance` has proved. It rewrites an operation that can
    process a dimension tile by tile (StreamingInterface: attention and its derivative, along the keys) if
    the operation reads that dimension gathered and its other operands are the same on all ranks of the
    gather: few queries, replicated, and many keys, sharded. Each rank computes with its own tile, and the
    partial results are combined over the ranks (split-KV, as in Flash-Decoding; Dao et al., 2023). Other
    operands that have the dimension unsharded are sliced to the tile. A result with that dimension, of
    which each rank read only its tile, is computed as that tile. With P ranks, each computes 1/P of the
    operation and sends the results twice instead of the tiles, unless gathering is modelled to be faster.

    Before:
    ```mlir
    dist.mesh @m <["r"=2]>
    func.func @f(%q: tensor<1x4x1x1x2xf32>, %k: tensor<1x4x1x2xf32> {dist.sharding = #dist.sharding<@m, [{}, {"r"}, {}, {} ]>}) -> tensor<1x4x1x1x2xf32> {
      %0 = dist.all_gather %k dims [1] over @m {"r"} purpose activation : (tensor<1x4x1x2xf32>) -> tensor<1x8x1x2xf32>
      %o, %lse = nn.attention %q, %0, %0 scale = 0.5 : (tensor<1x4x1x1x2xf32>, tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> (tensor<1x4x1x1x2xf32>, tensor<1x1x1x4xf32>)
      return %o : tensor<1x4x1x1x2xf32>
    }
    ```

    After, in short (elementwise operations as formulas):
    ```
    %o, %lse = nn.attention %q, %k, %k
    %m = dist.all_reduce max %lse over @m {"r"} purpose activation
    %w = exp(%lse - %m)
    %s:2 = dist.all_reduce sum %o * %w, %w over @m {"r"} purpose activation
    return %s#0 / %s#1
    ```
  }];
  let options = [
    Option<"always", "always", "bool", "false", "Also where gathering is modelled to be faster.">,
    Option<"cluster", "cluster", "std::string", "\"\"", "A cluster.toml with the links; none: defaults.">,
  ];
  let dependentDialects = ["::cleave::dist::DistDialect", "::cleave::nn::NNDialect"];
}

def DistDecomposePass : Pass<"dist-decompose", "::mlir::ModuleOp"> {
  let summary = "Pass tiles round a ring of ranks instead of gathering them (ring attention)";
  let description = [{
    Runs on per-rank programs that `dist-verify-variance` has proved. It rewrites an operation that can
    process a dimension tile by tile (StreamingInterface: attention and its derivative, along the keys)
    and reads that dimension gathered. In every round each rank computes with the tile that it has and
    passes the tile on to the next rank (ring attention; Liu et al., 2023). The tile for the next round is
    sent before the round is computed, so that the transfer overlaps with it; no rank holds more than two
    tiles. Other operands that have the dimension unsharded (positions, segments, masks, bias) are sliced
    to the part of the tile's owner. Partial results are combined in each round. A result that has the
    dimension and was reduce-scattered accumulates while it travels round the ring; each rank keeps its
    own contribution and adds it last, which saves one round. With P ranks and tiles of K bytes a rank
    sends (P - 1) K bytes in the forward and 2 (P - 1) K in the backward pass. If positions are indices
    and a window does not reach some tiles, their rounds are left out.

    `plan` = auto keeps the gather if it is modelled to be faster (short messages, whose latency the
    compute of a round does not hide) and the gathered operand takes no more memory than the operation's
    other operands and results.

    Before:
    ```mlir
    dist.mesh @m <["r"=2]>
    func.func @f(%q: tensor<1x4x1x1x2xf32>, %k: tensor<1x4x1x2xf32>, %v: tensor<1x4x1x2xf32>) -> tensor<1x4x1x1x2xf32> {
      %0 = dist.all_gather %k dims [1] over @m {"r"} purpose activation : (tensor<1x4x1x2xf32>) -> tensor<1x8x1x2xf32>
      %1 = dist.all_gather %v dims [1] over @m {"r"} purpose activation : (tensor<1x4x1x2xf32>) -> tensor<1x8x1x2xf32>
      %o, %lse = nn.attention %q, %0, %1 scale = 0.5 : (tensor<1x4x1x1x2xf32>, tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> (tensor<1x4x1x1x2xf32>, tensor<1x1x1x4xf32>)
      return %o : tensor<1x4x1x1x2xf32>
    }
    ```

    After, in short (`combine` stands for about ten elementwise operations):
    ```
    %1:2 = dist.collective_permute %k, %v pairs [0, 1, 1, 0] over @m {"r"} purpose activation
    %o0, %lse0 = nn.attention %q, %k, %v
    %o1, %lse1 = nn.attention %q, %1#0, %1#1
    %o = combine(%o0, %lse0, %o1, %lse1)
    ```
  }];
  let options = [
    ListOption<"axes", "axes", "std::string", "Mesh axes along which tiles may go round a ring; none: all.">,
    Option<"plan", "plan", "std::string", "\"ring\"", "auto | ring | gather; auto: what is modelled to be faster.">,
    Option<"cluster", "cluster", "std::string", "\"\"", "A cluster.toml with the links; none: defaults.">,
  ];
  let dependentDialects = ["::cleave::dist::DistDialect", "::cleave::nn::NNDialect"];
}

def DistDispatchExpertsPass : Pass<"dist-dispatch-experts", "::mlir::ModuleOp"> {
  let summary = "Dispatch rows to the ranks of the experts that they choose (expert parallelism)";
  let description = [{
    Runs on per-rank programs that `dist-verify-variance` has proved. It rewrites each `nn.grouped_dot`
    whose matrices are gathered over `axis`, and each `nn.grouped_outer` whose result is scattered over
    it. Instead of the matrices, the slots' rows move (expert parallelism; Lepikhin et al., 2020): each
    rank dispatches its rows to the ranks of the experts that they chose (`dist.plan_rows`, then
    `dist.all_to_all_v`, the counts first). The product is computed there with the tile of matrices, and
    its results return to the slots of the rows' owners. Only rows are sent, no padding.

    A buffer holds `max-load` times the rows that one rank sends another when routing is balanced. Rows
    beyond that are sent in further rounds. The program has as many rounds as any routing can need, so no
    row is ever dropped. Ranks exchange all counts, so that they agree on which rounds to skip. Rows of
    the first round that the backward pass reads are saved at the expert; rows of further rounds are sent
    and recomputed in the backward pass.

    Rows stay at the experts between products: elementwise operations on results are computed there if
    another product with the same choice reads them, sums of results are combined as one, and residuals
    are saved there. So a gated layer of experts exchanges rows twice in the forward pass (before the
    first products and after the last one) and twice in the backward pass. Rows of padding, whose ids a
    mask has replaced by -1, are not sent.

    If `axis` has links of two classes (`within` of the mesh), `exchange` says whether rows are sent
    directly to each rank or in two steps, between nodes and then within the node; `auto` takes what is
    faster by the links of `cluster`. With two steps, the collectives are over the two parts of the axis:
    the second step dispatches the rows of the products that the first step has created.

    Before:
    ```mlir
    dist.mesh @m <["x"=2]>
    func.func @f(%x: tensor<5x6xf32>, %w: tensor<3x6x8xf32>, %ids: tensor<5xi64>) -> tensor<5x8xf32> {
      %0 = dist.all_gather %w dims [0] over @m {"x"} purpose expert : (tensor<3x6x8xf32>) -> tensor<6x6x8xf32>
      %1 = nn.grouped_dot %x, %0, %ids : tensor<5x6xf32>, tensor<6x6x8xf32>, tensor<5xi64> -> tensor<5x8xf32>
      return %1 : tensor<5x8xf32>
    }
    ```

    After, in short, of one round (`%there_ids` is -1 where no row has arrived):
    ```
    %sources, %places, %sent, %counts = dist.plan_rows %ids tile 3
    %received = dist.all_to_all %counts
    %there_ids = dist.all_to_all_v %sent sent %counts received %received expect [5]
    %rows = nn.gather %x, %sources dim = 0
    %there = dist.all_to_all_v %rows sent %counts received %received expect [5]
    %product = nn.grouped_dot %there, %w, %there_ids
    %home = dist.all_to_all_v %product sent %received received %counts expect [5]
    %1 = nn.gather %home, %places dim = 0
    ```
  }];
  let options = [
    Option<"axis", "axis", "std::string", "\"expert\"", "Mesh axis over which the experts' matrices are sharded">,
    Option<"maxLoad", "max-load", "double", "2.0", "Rows that a buffer holds, as a multiple of the rows of balanced routing">,
    Option<"exchange", "exchange", "std::string", "\"auto\"",
           "Over links of two classes: auto, direct or hierarchical">,
    Option<"cluster", "cluster", "std::string", "\"\"",
           "A cluster.toml with the links, for `auto`; empty: the defaults">,
  ];
  let dependentDialects = ["::cleave::dist::DistDialect", "::cleave::nn::NNDialect"];
}

def DistSortRowsPass : Pass<"dist-sort-rows", "::mlir::ModuleOp"> {
  let summary = "Sort rows by the matrices that they choose";
  let description = [{
    Runs on per-rank programs. The rows that `nn.grouped_dot` and `nn.grouped_outer` read are sorted by
    their ids, so that the rows of one matrix are adjacent (the permutation of MegaBlocks; Gale et al.,
    2022). All products with the same ids share one sort (`dist.sort_rows`). Elementwise operations
    between the products work in sorted order; only values with other readers are put back in the original
    order. If several slots of a token have the same row, the rows are gathered from the token. Numerical
    results do not change: rows are computed as before, and sums over the rows of a matrix keep their
    order.

    Before:
    ```mlir
    func.func @f(%x: tensor<5x6xf32>, %w: tensor<3x6x8xf32>, %v: tensor<3x8x6xf32>, %ids: tensor<5x2xi64>) -> tensor<5x2x6xf32> {
      %0 = nn.broadcast %x dims = [0, 2] : tensor<5x6xf32> -> tensor<5x2x6xf32>
      %1 = nn.grouped_dot %0, %w, %ids : tensor<5x2x6xf32>, tensor<3x6x8xf32>, tensor<5x2xi64> -> tensor<5x2x8xf32>
      %2 = nn.sigmoid %1 : tensor<5x2x8xf32>
      %3 = nn.grouped_dot %2, %v, %ids : tensor<5x2x8xf32>, tensor<3x8x6xf32>, tensor<5x2xi64> -> tensor<5x2x6xf32>
      return %3 : tensor<5x2x6xf32>
    }
    ```

    After:
    ```mlir
    func.func @f(%x: tensor<5x6xf32>, %w: tensor<3x6x8xf32>, %v: tensor<3x8x6xf32>, %ids: tensor<5x2xi64>) -> tensor<5x2x6xf32> {
      %order, %places, %sorted = dist.sort_rows %ids groups 3 : tensor<5x2xi64> -> tensor<10xi64>, tensor<5x2xi64>, tensor<10xi64>
      %c2 = arith.constant dense<2> : tensor<10xi64>
      %tokens = arith.divui %order, %c2 : tensor<10xi64>
      %0 = nn.gather %x, %tokens dim = 0 : tensor<5x6xf32>, tensor<10xi64> -> tensor<10x6xf32>
      %1 = nn.grouped_dot %0, %w, %sorted : tensor<10x6xf32>, tensor<3x6x8xf32>, tensor<10xi64> -> tensor<10x8xf32>
      %2 = nn.sigmoid %1 : tensor<10x8xf32>
      %3 = nn.grouped_dot %2, %v, %sorted : tensor<10x8xf32>, tensor<3x8x6xf32>, tensor<10xi64> -> tensor<10x6xf32>
      %4 = nn.gather %3, %places dim = 0 : tensor<10x6xf32>, tensor<5x2xi64> -> tensor<5x2x6xf32>
      return %4 : tensor<5x2x6xf32>
    }
    ```
  }];
  let dependentDialects = ["::cleave::dist::DistDialect", "::cleave::nn::NNDialect"];
}

def ChooseResidualsPass : Pass<"nn-choose-residuals", "::mlir::ModuleOp"> {
  let summary = "Decide how long gathered values live";
  let description = [{
    Runs on per-rank programs. A sharded parameter (or constant) is gathered right before the first
    operation that reads it; views of it are moved there, too. A parameter that both the forward and the
    backward pass read is gathered twice and freed in between. The second gather serves the readers after
    the longest interval without a reader, the first gather those before it. The operand of the second
    gather is an `nn.rematerialize` that waits for a value that its first reader also needs. A parameter
    that the backward pass does not read (a bias) is gathered once.

    `keep-parameters` names axes over which parameters are gathered once and stay gathered (FSDP without
    resharding after the forward pass). `keep-activations` names axes over which an activation is saved
    gathered, instead of as a tile that the backward pass would gather again.

    The forward pass is all that the saved values, and the results other than gradients and cotangents,
    depend on.

    Before:
    ```mlir
    %0 = dist.all_gather %w dims [0] over @m {"data"} purpose parameter : (tensor<3x8xf32>) -> tensor<6x8xf32>
    %1 = nn.einsum "bh,hf->bf" %x, %0 : tensor<4x6xf32>, tensor<6x8xf32> -> tensor<4x8xf32>
    %2 = nn.save %1 : tensor<4x8xf32>
    %dy = math.exp %2 : tensor<4x8xf32>
    %dx = nn.einsum "bf,hf->bh" %dy, %0 : tensor<4x8xf32>, tensor<6x8xf32> -> tensor<4x6xf32>
    ```

    After:
    ```mlir
    %0 = dist.all_gather %w dims [0] over @m {"data"} purpose parameter : (tensor<3x8xf32>) -> tensor<6x8xf32>
    %1 = nn.einsum "bh,hf->bf" %x, %0 : tensor<4x6xf32>, tensor<6x8xf32> -> tensor<4x8xf32>
    %2 = nn.save %1 : tensor<4x8xf32>
    %dy = math.exp %2 : tensor<4x8xf32>
    %3 = nn.rematerialize %w after %dy : tensor<3x8xf32>, tensor<4x8xf32>
    %4 = dist.all_gather %3 dims [0] over @m {"data"} purpose parameter : (tensor<3x8xf32>) -> tensor<6x8xf32>
    %dx = nn.einsum "bf,hf->bh" %dy, %4 : tensor<4x8xf32>, tensor<6x8xf32> -> tensor<4x6xf32>
    ```
  }];
  let options = [
    ListOption<"keepParameters", "keep-parameters", "std::string",
               "Axes over which parameters are gathered once.">,
    ListOption<"keepActivations", "keep-activations", "std::string",
               "Axes over which activations are saved gathered.">,
  ];
  let dependentDialects = ["::cleave::dist::DistDialect", "::cleave::nn::NNDialect"];
}

include "cleave/Partition/OverlapPasses.td"

#endif
