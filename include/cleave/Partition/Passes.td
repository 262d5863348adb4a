//===- Passes.td - from shardings to per-rank programs ----------*- tablegen -*-===//

#ifndef CLEAVE_PARTITION_PASSES_TD
#define CLEAVE_PARTITION_PASSES_TD

include "mlir/Pass/PassBase.td"

def DistPropagatePass : Pass<"dist-propagate", "::mlir::ModuleOp"> {
  let summary = "Propagate shardings to all values, to a fixed point";
  let description = [{
    Before: some arguments, results and `dist.constrain` operations carry shardings. After: every
    argument, result and operation has a closed `dist.sharding`. In all functions, arguments and results
    with the same name and role (`nn.role`, such as parameter or gradient) have the same sharding.

    The pass works on the factors of sharding rules (ShardingRule.h). If a factor is sharded in one
    tensor of an operation, it becomes sharded in the operation's other tensors, as far as their
    dimensions are open and do not use the axis already. Elementwise operations propagate first, then
    operations that move elements, then contractions. Shardings of priority 0 propagate before those of
    priority 1. If two tensors of an operation disagree, each keeps its sharding, and the sharding with
    which the operation needs to reshard the fewest bytes propagates further. The result of the pass
    does not depend on the order of operations. Constants and index grids (`nn.iota`) take no part in
    propagation, because they are computed anew in each layout in which they are read. `dist-plan-ops`
    decides later over which axes an operation gathers its operands or computes partial results.

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
  // Loading the nn dialect also loads arith and math, and attaches their sharding rules.
  let dependentDialects = ["::cleave::dist::DistDialect", "::cleave::nn::NNDialect"];
}

def DistSplitHandoversPass : Pass<"dist-split-handovers", "::mlir::ModuleOp"> {
  let summary = "Send values between pipeline stages in tiles where that is cheaper";
  let description = [{
    Runs on a stage of a pipeline, between `dist-propagate` and `dist-plan-ops`. Stages send each other
    activations and cotangents. If such a value is replicated over several ranks of a stage, each rank
    would send the whole value. Instead, each rank can send a tile, and the receiving ranks all-gather
    the tiles. The pass compares two times by the cost model of docs/cluster.md: the time to send a tile
    to the next stage and to all-gather the tiles within that stage, and the time to send the whole
    value. It chooses tiles if they take less time. The value is then sharded along the outermost
    dimension that divides evenly, so that tiles have no padding.

    After the pass, an argument or result that is sent in tiles has the sharding of the tiles, and its
    attribute `pipe.inside` has its sharding inside the stage. One `dist.constrain` all-gathers the
    tiles of a received argument for all operations that read it. An argument that the stage only sends
    on, or only adds to a result that is sent in tiles, is not gathered. A sent result that no operation
    of the stage reads is computed in tiles, so that its all-reduce can become a reduce-scatter. The
    sending and the receiving stage make the same choice. A remark reports each result sent in tiles.

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
    Before: every value has a sharding. After: every operation has a `dist.plan`. In this plan,
    `factors` lists the axes of each factor of the operation's sharding rule; these axes determine the
    layouts that the operands must have and the layouts in which results are computed. `carry` lists the
    axes over which both the operands and the results are partial sums; the `dist.sharding` of such a
    result is partial over these axes.

    If the shardings of an operation's operands and results agree, there is only one plan. Otherwise the
    pass compares all assignments of axes to factors by the time of resharding operands and results and
    the time of replicated computation. Partial sums pass through linear operations if no other
    operation reads them; for example, several partial sums are added first and then reduced once.

    Before:
    ```mlir
    %0 = nn.einsum "bh,hf->bf" %x, %w {dist.sharding = [#dist.sharding<@m, [{}, {} ]>]} : tensor<4x6xf32>, tensor<6x8xf32> -> tensor<4x8xf32>
    ```

    After (dimension h of both operands is sharded over "tensor", so each rank computes a partial sum):
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
  // Loading the nn dialect also loads arith and math, and attaches their sharding rules.
  let dependentDialects = ["::cleave::dist::DistDialect", "::cleave::nn::NNDialect"];
}

def DistPartitionPass : Pass<"dist-partition", "::mlir::ModuleOp"> {
  let summary = "Rewrite functions into per-rank (SPMD) programs";
  let description = [{
    Before: every operation has a plan and a sharding, and values have their global shapes. After: values
    have the shapes of tiles, and every movement of data is an explicit collective. Arguments and results
    keep `dist.sharding` and gain `dist.global_type`, the type of the unsharded tensor. `dist.constrain`
    is gone.

    Each operation emits its own per-rank form (ShardingRuleInterface::planLocal). If an operand does
    not have the layout that the operation needs, a reshard (collectives that change the layout) is
    inserted before the operation; operations that need the same layout share one reshard. A search over
    layouts under the cost model of docs/cluster.md finds its collectives. A remark reports each gather
    of an activation that no constraint requested, with its size and the operation that is its source.

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
    For every value and mesh axis, the pass computes whether the ranks along the axis hold the same
    value, tiles of one dimension, partial sums (or candidates of a maximum or minimum), or unrelated
    values. If several axes shard one dimension, the pass also computes their order. It runs after
    `dist-partition` and after passes that change communication, and does not change the program.

    These are errors: a partial sum that is read by an operation that is not linear in it, or that is
    added to a value that is not partial; a reduction over an axis over which its operand is not
    partial, or is partial with another kind of reduction; operands sharded on different dimensions by
    one axis, or by axes in different orders; tiles combined with an unsharded value; tiles gathered in
    another order than that in which they were sliced; a result that contradicts its `dist.sharding`.

    For each dimension that is padded, the pass computes the global size, the axes over which it is
    sharded, and the value of the padding in the last tiles. These are errors:
    - A reduction includes padding whose value is not its identity (such as 0 for a sum).
    - An operation may read padding at an index, or reads it as part of a row (such as a softmax).
    - A concatenation, a pad, a reshape or a reversal would put padding between elements.
    - A mask has another size, tile, dimension or order of axes than the tensor that it masks, or this
      tensor has no padding.
    - Two operands, a result and its declared type, or two iterations of a loop disagree on a global size.

    Some properties are not proved, but errors in them are found by execution (`cleave check`): that a
    `dist.window` begins at the right element and that its `whole` is the size of the result computed
    from it; that a collective-permute sends each tile to the rank that needs it (unless a mistake shows
    in the padding); that values computed from a tile's offset (other than masks and indices into padded
    tables) are right; and whether a constant is a tile or unsharded.

    The padding of a dimension is not checked if the program does not determine the dimension's
    unsharded size. These are dimensions of arguments without `dist.global_type`; of the results of
    scatters, of reshapes of tiles with one element, and of a `dist.slice` whose tiles do not nest in
    the tiles that it slices; and of values computed from these, for example by a reshape that merges
    dimensions. The value of padding becomes unknown to the pass if an operation computes with it, or a
    loop or branch carries it. If one operand of a product is masked along a dimension, the other
    operand must be masked, too, if it is known to be padded. If this is not known, its elements are
    assumed to be finite, so that their products with the zeros of the mask are zero.

    Before and After are the same program. With the first dimension of %x split:
    ```mlir
    // Error: exp of partial sums.
    %0 = nn.reduce sum %x dims = [0] : tensor<2x6xf32> -> tensor<6xf32>
    %1 = math.exp %0 : tensor<6xf32>
    ```
  }];
  // Loading the nn dialect also loads arith and math, and attaches their sharding rules.
  let dependentDialects = ["::cleave::nn::NNDialect"];
}

def DistCombinePass : Pass<"dist-combine", "::mlir::ModuleOp"> {
  let summary = "Shrink collectives, and remove redundant ones";
  let description = [{
    Runs on per-rank programs, in loops and branches, too. If each rank reads only its own tile of the
    result of an all-reduce, the all-reduce becomes a reduce-scatter. An all-gather is removed if each
    rank reads only its own tile of the result. A slice into tiles is removed if the tiles are
    all-gathered again. Equal collectives of a block are merged. This merge does not keep a gathered
    value of the forward pass alive for the backward pass, because the all-gather of the backward pass
    has another operand (the result of an `nn.save`).

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
    Runs after `dist-verify-variance` has proved that values are sharded correctly. The pass rewrites an
    operation that can process a dimension tile by tile (StreamingInterface: attention and its
    derivative, along the keys) if the operation reads this dimension all-gathered and its other operands
    are replicated over the ranks of the all-gather, for example attention with few replicated queries
    and many sharded keys. Each rank computes with its own tile, and the partial results are combined
    over the ranks (split-KV, as in Flash-Decoding; Dao et al., 2023). If another operand has the
    dimension unsharded, each rank takes the slice that belongs to its tile. If each rank reads only its
    own tile of a result with this dimension, it computes only this tile. With P ranks, each rank
    computes 1/P of the operation. It does not send its tile, but about twice the bytes of the results
    (in an all-reduce). The pass does nothing if gathering is faster by the cost model.

    Before:
    ```mlir
    dist.mesh @m <["r"=2]>
    func.func @f(%q: tensor<1x4x1x1x2xf32>, %k: tensor<1x4x1x2xf32> {dist.sharding = #dist.sharding<@m, [{}, {"r"}, {}, {} ]>}) -> tensor<1x4x1x1x2xf32> {
      %0 = dist.all_gather %k dims [1] over @m {"r"} purpose activation : (tensor<1x4x1x2xf32>) -> tensor<1x8x1x2xf32>
      %o, %lse = nn.attention %q, %0, %0 scale = 0.5 : (tensor<1x4x1x1x2xf32>, tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> (tensor<1x4x1x1x2xf32>, tensor<1x1x1x4xf32>)
      return %o : tensor<1x4x1x1x2xf32>
    }
    ```

    After (shortened; elementwise operations as formulas):
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
    Runs after `dist-verify-variance` has proved that values are sharded correctly. The pass rewrites an
    operation that can process a dimension tile by tile (StreamingInterface: attention and its
    derivative, along the keys) and reads this dimension all-gathered. In every step each rank computes
    with the tile that it has and passes the tile on to the next rank (ring attention; Liu et al., 2023).
    The tile for the next step is sent before the step is computed, so that the transfer overlaps with
    computation; no rank holds more than two tiles. If another operand has the dimension unsharded
    (positions, segments, masks, bias), each rank takes in each step the slice that belongs to its
    present tile. Partial results are combined in each step. A result that has the dimension and was
    reduce-scattered, such as the gradient of the keys, is sent around the ring and accumulated on the
    way; each rank adds to its own tile last, which saves one step. With P ranks and tiles of K bytes, a
    rank sends (P - 1) K bytes in the forward pass and 2 (P - 1) K bytes in the backward pass. If
    positions are the indices in the sequence, steps with tiles outside of a sliding window are omitted.

    With `plan` = auto, the gather is kept if two conditions hold: by the cost model it is faster (if
    messages are short, the computation of a step does not hide their latency), and the gathered operand
    takes no more memory than the operation's other operands and results.

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

    After (shortened; `combine` stands for about ten elementwise operations):
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
  let summary = "Dispatch tokens to the ranks of their experts (expert parallelism)";
  let description = [{
    Runs after `dist-verify-variance` has proved that values are sharded correctly. The pass rewrites
    each `nn.grouped_dot` whose matrices are gathered over `axis`, and each `nn.grouped_outer` whose
    result is scattered over `axis`. Instead of the matrices, rows are sent (expert parallelism; Lepikhin
    et al., 2020). There is one row for each pair of a token and an expert that it chose. Each rank
    dispatches its rows to the ranks of their experts (`dist.plan_rows`, then an exchange of the numbers
    of rows, then `dist.all_to_all_v`). These ranks compute the product with their tile of matrices and
    send the results back to the ranks of the tokens. Only rows are sent, no padding.

    For the rows from each other rank, a receive buffer has room for `max-load` times the number of rows
    with balanced routing. Rows that do not fit are sent afterwards through the same buffers, in further
    exchange rounds. The program has as many rounds as any routing can need, so no row is ever dropped.
    Ranks tell each other how many rows they send in each round, so that all of them skip the same
    rounds. If the backward pass reads rows, those of the first round are saved on the ranks of the
    experts; those of further rounds are sent again, and values computed from them are recomputed.

    Between products that read the same `ids`, rows stay on the ranks of the experts: these ranks
    compute the elementwise operations between the products and save the residuals, and a sum of several
    results is sent back as one result. So a gated layer of experts exchanges rows twice in the forward
    pass (before the first products and after the last one) and twice in the backward pass. Rows of
    padding, whose ids a mask has replaced by -1, are not sent.

    If `axis` has links of two classes (`within` of the mesh), `exchange` says whether rows are sent
    directly to each rank or in two steps, between nodes and then within the node; `auto` selects the
    faster way by the link speeds in the file `cluster`. For two steps, the all-gather of the matrices
    is split into one between nodes and one within nodes. First an exchange of rows replaces the
    all-gather between nodes. The products on the received rows still read matrices that are gathered
    within the node, and a second exchange of rows replaces this all-gather.

    Before:
    ```mlir
    dist.mesh @m <["x"=2]>
    func.func @f(%x: tensor<5x6xf32>, %w: tensor<3x6x8xf32>, %ids: tensor<5xi64>) -> tensor<5x8xf32> {
      %0 = dist.all_gather %w dims [0] over @m {"x"} purpose expert : (tensor<3x6x8xf32>) -> tensor<6x6x8xf32>
      %1 = nn.grouped_dot %x, %0, %ids : tensor<5x6xf32>, tensor<6x6x8xf32>, tensor<5xi64> -> tensor<5x8xf32>
      return %1 : tensor<5x8xf32>
    }
    ```

    After (shortened, with only one exchange round; `%there_ids` is -1 where no row has arrived):
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
  let summary = "Sort the rows of grouped matrix products by expert";
  let description = [{
    Runs on per-rank programs. The rows that `nn.grouped_dot` and `nn.grouped_outer` read are sorted by
    expert id, so that the rows that are multiplied with the same expert matrix are adjacent (the
    permutation of MegaBlocks; Gale et al., 2022). All products that read the same `ids` share one sort
    (`dist.sort_rows`). Elementwise operations between the products work in sorted order; a value is put
    back in the original order only for other operations. If a token has the same row for each of its
    experts, the sorted rows are gathered directly from the rows of the tokens. Numerical results do not
    change: rows are computed as before, and sums over the rows of one expert keep their order.

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
    backward pass read is gathered twice and freed in between. Its readers are divided at the longest
    interval without a reader: the readers before this interval use the first gather, those after it the
    second. The operand of the second gather is an `nn.rematerialize`, which waits for another operand
    of the first reader after the interval. So the second gather cannot run too early, which would
    occupy memory. A parameter that the backward pass does not read (a bias) is gathered once.

    `keep-parameters` names axes over which parameters are gathered once and stay gathered (FSDP without
    resharding after the forward pass). `keep-activations` names axes over which the backward pass does
    not gather an activation again: instead of its tile, each rank saves the all-gathered activation.

    The pass takes an operation for a part of the forward pass if a saved value, or a result of the
    function other than a gradient or a cotangent, depends on it.

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
