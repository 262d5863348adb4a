//===- Passes.td - from shardings to the program of one rank -----*- tablegen -*-===//

#ifndef CLEAVE_PARTITION_PASSES_TD
#define CLEAVE_PARTITION_PASSES_TD

include "mlir/Pass/PassBase.td"

def DistPropagatePass : Pass<"dist-propagate", "::mlir::ModuleOp"> {
  let summary = "Spread shardings to all values, to a fixed point";
  let description = [{
    Before: some arguments, results and `dist.constrain` carry shardings. After:
    every argument, result and operation has a closed `dist.sharding`, the same for
    one name in all functions.

    Works on factors (see ShardingRule.h): a factor that is split in one tensor of
    an operation is split in all of them, as far as their dimensions are open
    and the axis is free there. What keeps tensors alike goes first, then what moves
    elements, then contractions; shardings of priority 0 go before those of 1. Where
    two tensors disagree, each keeps its own, and what is spread further is what makes
    the operation's tensors move the fewest bytes. The order of operations does not matter.
    Constants and index grids take no part: they are emitted anew for each layout.
    Which axes are gathered or left partial is decided by `dist-plan-ops`.

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
           "Tell for every split dimension where its sharding came from.">
  ];
  // The rules of arith and math come with nn.
  let dependentDialects = ["::cleave::dist::DistDialect", "::cleave::nn::NNDialect"];
}

def DistSplitHandoversPass : Pass<"dist-split-handovers", "::mlir::ModuleOp"> {
  let summary = "Hand values from stage to stage in tiles where that is cheaper";
  let description = [{
    On a stage of a pipeline, between `dist-propagate` and `dist-plan-ops`. A value
    that crosses stages (roles activation and cotangent) and is the same on several
    ranks of a stage would be sent whole by each. Instead each can send a tile,
    which the receivers gather. That is chosen where the model of docs/cluster.md
    gives it less time: the tile over the link between the stages and the gather
    over the links of its axes, against the whole over the link between the stages.
    Tiles never need padding; of the dimensions that divide, the outermost is split.

    After: the argument or result has the sharding of the tiles, and `pipe.inside`
    says how it lies inside the stage. One constraint gathers an argument for all
    that read it; what only passes through, or is added to what leaves, stays in
    tiles. What nothing else reads is asked for in tiles, so that its sum can be
    scattered at once. Both stages decide alike. A remark tells of each value sent.

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
           "Class of the link to the stage before; none: it is on the same rank.">,
    Option<"next", "next", "std::string", "\"\"",
           "Class of the link to the stage after; none: it is on the same rank.">,
    Option<"cluster", "cluster", "std::string", "\"\"",
           "A cluster.toml with the links; none: defaults.">
  ];
  let dependentDialects = ["::cleave::dist::DistDialect", "::cleave::nn::NNDialect"];
}

def DistPlanOpsPass : Pass<"dist-plan-ops", "::mlir::ModuleOp"> {
  let summary = "Choose for each operation the axes of its factors";
  let description = [{
    Before: every value has a sharding. After: every operation has a `dist.plan`:
    `factors` lists the axes of each factor of its rule, from which follow the
    layouts that its operands must have and those in which results appear;
    `carry` lists the axes over which it takes operands partial and gives
    results partial. The `dist.sharding` of a result that stays partial says so.

    Where the tensors of an operation agree there is one choice. Elsewhere all
    assignments of axes to factors are weighed: bytes that the operands' and
    results' reshards send, against the work that is not divided. Addends pass
    through linear operations as long as no one else reads them, so that sums of
    several partial values are reduced once.

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
           "Tell of every result that is a sum (maximum, minimum) of parts where that comes from, "
           "and where it is reduced.">,
    Option<"cluster", "cluster", "std::string", "\"\"",
           "A cluster.toml with the links that reshards are planned for; none: defaults.">
  ];
  // The rules of arith and math come with nn.
  let dependentDialects = ["::cleave::dist::DistDialect", "::cleave::nn::NNDialect"];
}

def DistPartitionPass : Pass<"dist-partition", "::mlir::ModuleOp"> {
  let summary = "Rewrite functions into the program of one rank";
  let description = [{
    Before: plans and shardings on every operation, values of logical shape. After:
    values have the shapes of tiles, and every movement of data is an
    explicit collective. Arguments and results keep `dist.sharding` and gain
    `dist.global_type`, the type of the whole tensor. `dist.constrain` is gone.

    Each operation emits its own local form (ShardingRuleInterface::planLocal).
    Between the layout that a value has and the one that a reader needs stands a
    reshard, shared by readers of the same layout. Reshards are planned by a search
    over layouts under the cost model of docs/cluster.md. A gather of an activation
    that no constraint asked for is reported as a remark with size and source.

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
           "Reshards may pass through tiles larger than the larger of source and target.">
  ];
  let dependentDialects = ["::cleave::dist::DistDialect", "::cleave::nn::NNDialect",
                           "::mlir::arith::ArithDialect", "::mlir::math::MathDialect"];
}

def DistVerifyVariancePass : Pass<"dist-verify-variance", "::mlir::ModuleOp"> {
  let summary = "Prove that a local program treats every value as what it is";
  let description = [{
    Knows for every value and mesh axis whether the ranks along it hold the same
    value, tiles of one dimension, addends (or candidates of a maximum or
    minimum), or simply different values; and of axes that split one dimension,
    which comes first. Changes nothing; runs after `dist-partition`, and again
    after the passes that change communication.

    Errors: a partial value read by an operation that is not linear in it, or added
    to one that is not partial; a reduction over an axis on which its operand is not
    partial, or of another kind; operands split on different dimensions by one
    axis, or by axes in different orders; tiles combined with what is whole; tiles
    gathered in another order than they were cut; a result that is not as its
    `dist.sharding` says.

    Of each dimension whose tiles do not cut it evenly it knows how many elements
    the whole has, which axes number the tiles, and what the padding of the last
    tiles holds. Errors: padding that is combined (summed, searched for a maximum,
    read by index, read as part of a row) and does not hold the identity of that
    combination; padding that a concatenation, a pad, a reshape or a reversal would
    put between elements; a mask of another size, tile, dimension or order of axes
    than the tensor has; a mask where there is no padding; wholes of two sizes in
    one operation, at a result, or from one trip of a loop to the next.

    Not proved, but found by execution (`cleave check`): that a window begins where
    it should and that its `whole` is the size of what is computed from it; that a
    collective-permute sends each tile to the rank that wants it, where no padding
    tells; that what is computed from a tile's offset (other than masks and indices
    into padded tables) is right; and whether a constant is a tile or the whole.

    Nothing is claimed of padding where the program does not tell the size: of
    scatters into a table, of reshapes of tiles of one element, of dimensions that
    merge such tiles with others, of a `dist.slice` of tiles that do not nest in
    those that they are cut of, of arguments without `dist.global_type`, and of what
    is computed from one of these. What padding holds is forgotten by all that
    computes with it, and where a loop or a branch carries it. Of a product with a
    masked operand the other one must be masked as well if it is padded there;
    where it is not known to be, its elements are taken to be finite.

    Before and After are the same. With the first dimension of %x split:
    ```mlir
    // Refused: exp of addends.
    %0 = nn.reduce sum %x dims = [0] : tensor<2x6xf32> -> tensor<6xf32>
    %1 = math.exp %0 : tensor<6xf32>
    ```
  }];
  // The rules of arith and math come with nn.
  let dependentDialects = ["::cleave::nn::NNDialect"];
}

def DistCombinePass : Pass<"dist-combine", "::mlir::ModuleOp"> {
  let summary = "Send smaller messages, and none twice";
  let description = [{
    On local programs: an all-reduce of which only this rank's tile is read becomes
    a reduce-scatter; a gather of which a rank reads its own tile, and
    tiles of a whole that are gathered again, are gone; equal collectives of a
    block are shared. In loops and branches, too. What is gathered in the forward pass is not kept for the
    backward pass by that: there the operand is another one (a saved value).

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
  let summary = "Compute with the tile that a rank has instead of gathering the tiles";
  let description = [{
    On local programs that are proved: an operation that can take a dimension tile
    by tile (StreamingInterface: attention and its derivative, along the keys),
    reads it gathered, and is given the same otherwise on all ranks that gathered
    it: few queries, which every rank has, and many keys. Each rank computes with its
    own tile, and partial results are combined over the ranks (split-KV, as in
    Flash-Decoding; Dao et al., 2023). What the operation reads whole beside them is cut to
    the part of the tile. A result that has the dimension, of which each rank took
    its tile, is that tile. Ranks send the results twice in place of the tiles, and
    compute a P-th; where that is modelled to be slower, tiles are gathered.

    Before:
    ```mlir
    dist.mesh @m <["r"=2]>
    func.func @f(%q: tensor<1x4x1x1x2xf32>, %k: tensor<1x4x1x2xf32> {dist.sharding = #dist.sharding<@m, [{}, {"r"}, {}, {} ]>}) -> tensor<1x4x1x1x2xf32> {
      %0 = dist.all_gather %k dims [1] over @m {"r"} purpose activation : (tensor<1x4x1x2xf32>) -> tensor<1x8x1x2xf32>
      %o, %lse = nn.attention %q, %0, %0 scale = 0.5 : (tensor<1x4x1x1x2xf32>, tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> (tensor<1x4x1x1x2xf32>, tensor<1x1x1x4xf32>)
      return %o : tensor<1x4x1x1x2xf32>
    }
    ```

    After, in short (elementwise operations stand as formulas):
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
  let summary = "Send the tiles of a gathered dimension round instead of gathering them";
  let description = [{
    On local programs that are proved: an operation that can take a dimension tile
    by tile (StreamingInterface: attention and its derivative, along the keys) and
    reads it gathered gets the tiles one after the other: in every round each rank
    computes with the tile that it has and passes it on to the next rank (Liu et
    al., 2023, ring attention). The tile for the next round is sent before the round
    is computed, so that it can be on its way meanwhile; no rank holds more than
    two. What the operation reads whole beside them (positions, segments, masks,
    bias) is cut to the part of the tile's owner. Partial results are combined as
    they come. A result that has the dimension and was scattered goes round with the
    tiles and is added up; every rank keeps its own first part, so that it moves
    one round less. With P ranks and tiles of K bytes a rank sends (P - 1) K forward,
    and 2 (P - 1) K backward. Where positions are indices and a window ends before
    some tiles, these rounds are left out.

    `plan` = auto leaves a dimension gathered where that is modelled to be faster
    (short messages, whose latency the computation of a round does not hide) and what is
    gathered takes no more memory than the operation's other operands and results.

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
    ListOption<"axes", "axes", "std::string", "Mesh axes along which tiles go round; none: all.">,
    Option<"plan", "plan", "std::string", "\"ring\"", "auto | ring | gather: round, gathered, or what is better.">,
    Option<"cluster", "cluster", "std::string", "\"\"", "A cluster.toml with the links; none: defaults.">,
  ];
  let dependentDialects = ["::cleave::dist::DistDialect", "::cleave::nn::NNDialect"];
}

def DistDispatchExpertsPass : Pass<"dist-dispatch-experts", "::mlir::ModuleOp"> {
  let summary = "Send rows to the ranks of the matrices that they choose";
  let description = [{
    On local programs that are proved: `nn.grouped_dot` whose matrices are gathered
    over `axis`, and `nn.grouped_outer` whose result is scattered over it. Instead
    of the matrices, rows move: each rank sends its rows to the ranks of the
    matrices that they choose (`dist.plan_rows`, `dist.all_to_all_v`, counts first), the
    product is computed there with the tile of matrices, and the result comes back
    to the rows' places (expert parallelism; Lepikhin et al., 2020). What is sent
    are the rows alone.

    A buffer has places for `max-load` times the rows that one rank sends another
    where rows choose ranks alike. What is beyond goes in further rounds, as many
    as can be needed, written out: none is ever dropped. Ranks tell each other all
    counts, so that all know which rounds nobody needs. What the backward pass reads
    of the first round is kept there; of further rounds it is sent and computed again.

    Rows stay where they are between products: what is computed from results element
    by element, and read by another product of the same choice, is computed
    there; sums of results come back as one; what the backward pass reads is kept
    there. So a gated layer of experts exchanges rows twice forward (in front of
    the first products, behind the last) and twice backward. Rows of padding, whose
    ids a mask has replaced by -1, are not sent.

    Where `axis` has links of two classes (`within` of the mesh), `exchange` says
    whether rows go to each rank directly or in two steps, between nodes and then
    within one; `auto` takes the one that the links of `cluster` make faster. For two
    steps the collectives are written over the two parts of the axis, and what the
    first step makes is dispatched by the second.

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
    Option<"axis", "axis", "std::string", "\"expert\"", "Mesh axis over which matrices lie">,
    Option<"maxLoad", "max-load", "double", "2.0", "Room for rows, in balanced shares">,
    Option<"exchange", "exchange", "std::string", "\"auto\"",
           "Over links of two classes: auto, direct or hierarchical">,
    Option<"cluster", "cluster", "std::string", "\"\"",
           "A cluster.toml that `auto` weighs; empty: the defaults">,
  ];
  let dependentDialects = ["::cleave::dist::DistDialect", "::cleave::nn::NNDialect"];
}

def DistSortRowsPass : Pass<"dist-sort-rows", "::mlir::ModuleOp"> {
  let summary = "Put rows in the order of the matrices that they choose";
  let description = [{
    On local programs: rows that `nn.grouped_dot` and `nn.grouped_outer` read are put in
    the order of their ids once for all products with the same ids (`dist.sort_rows`), so
    that the rows of a matrix lie together. What is computed between products, element by
    element, is computed in that order, and only what is read elsewhere is put back.
    Rows of slots that share a token's values are read from the token. No number
    changes: a row is computed as before, and sums over the rows of a matrix keep their
    order (the permutation of Megablocks; Gale et al., 2022).

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
    On local programs. A parameter (or constant) that lies split is gathered right
    before the first operation that reads it, with the placements that lie
    between. One that is read in the forward and in the backward pass is
    gathered twice, and dropped in between: the first gather serves the readers
    before the longest time in which nobody reads it, the second those
    after it. Its operand is an `nn.rematerialize` that waits for what its first reader
    waits for. A parameter whose value the backward pass does not read (a bias) is
    gathered once.

    `keep-parameters` names axes over which parameters are gathered once and stay
    (FSDP without resharding after the forward pass). `keep-activations` names axes
    over which a gathered activation is saved whole, instead of the tile that the
    backward pass would gather again.

    Forward is what the saved values and the results other than gradients need.

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
               "Axes over which activations are saved as they were gathered.">,
  ];
  let dependentDialects = ["::cleave::dist::DistDialect", "::cleave::nn::NNDialect"];
}

include "cleave/Partition/OverlapPasses.td"

#endif
