// Strategies of the shard phase, in the order in which they run.

#ifndef CLEAVE_STRATEGY_PASSES_TD
#define CLEAVE_STRATEGY_PASSES_TD

include "mlir/Pass/PassBase.td"

def StrategyTensorPass : Pass<"strategy-tensor", "::mlir::ModuleOp"> {
  let summary = "Split every contraction with a parameter once, at the least communication";
  let description = [{
    Tensor parallelism in one dimension (Shoeybi et al., 2019), found from the
    graph. Dimensions that factors of operations connect are one class: the
    heads of a layer, the width of an MLP, the vocabulary, the hidden size of
    all layers. A class is a candidate if it stands in a parameter, in no input,
    at most once in any tensor, and no operation needs it whole. Candidates are taken by
    the contraction FLOPs that they newly divide per byte that they make the ranks
    send, until every contraction with a parameter is divided, or what is left costs more
    than 32 times as much per FLOP as the first. In a transformer this gives heads, MLP width and vocabulary; the hidden size
    stays whole. A class whose padding would waste more than half is not taken
    (2 KV heads on 4 ranks: the query heads of a group are split instead, and the remark
    says what stays replicated).

    Layouts of more axes split what stands across from the chosen dimensions too
    (the hidden size), and the batch of all values. A product with a parameter is
    pinned by constraints on operands and results; `q` ranks an axis:

    | layout | between products | a parameter [in, out] is stored as | while multiplied |
    |---|---|---|---|
    | 1d | hidden size whole, chosen by `axis` | chosen by `axis` | the same |
    | 1d, sequence | positions by `axis` where no chosen dimension is | chosen by `axis` | positions gathered |
    | 2d [row, col] | batch by row, features by col | in by row, out by col | in gathered |
    | 2.5d [depth, row, col] | batch by depth and row, features by col | as 2d, whole over depth | as 2d |
    | 3d [i, j, k] | batch by i, j and hidden by k, or batch by i, k and chosen by j | hidden by k, chosen by j, in by i too | batch by i, in not by i |

    In 2d and 2.5d parameters, and inputs of products, are gathered again in the
    backward pass; in 3d what was gathered is kept; in 1d with sequence, as
    `saved-input` says. Vectors lie as the features that they meet. Gradients over
    axes that split samples or positions and not the parameter stay partial
    between `@loss_grad` and `@update`.

    In 1d without sequence only shardings of parameter arguments are placed, in all
    functions alike.

    Before:
    ```mlir
    dist.mesh @mesh <["tensor"=2]>
    func.func private @loss_grad(tensor<6x10xf32> {nn.name = "w", nn.role = #nn.role<parameter>})
    ```

    After, if the dimension of size 10 is the inner one of an MLP:
    ```mlir
    dist.mesh @mesh <["tensor"=2]>
    func.func private @loss_grad(tensor<6x10xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"tensor"} ]>,
                                                   nn.name = "w", nn.role = #nn.role<parameter>})
    ```
  }];
  let options = [
    Option<"axis", "axis", "std::string", "\"tensor\"", "Mesh axis of layout 1d">,
    Option<"layout", "layout", "std::string", "\"1d\"", "1d, 2d, 2.5d or 3d">,
    ListOption<"axes", "axes", "std::string",
               "Mesh axes of the other layouts: 2d row,col; 2.5d depth,row,col; 3d i,j,k">,
    ListOption<"batchAxes", "batch-axes", "std::string",
               "Mesh axes that split the batch before those of the layout">,
    ListOption<"sequenceAxes", "sequence-axes", "std::string",
               "Mesh axes that split the positions before the layout does, and while products are computed">,
    Option<"sequence", "sequence", "bool", "false",
           "1d: split the positions between products, too (Megatron's sequence parallelism)">,
    Option<"savedInput", "saved-input", "std::string", "\"shard\"",
           "1d with sequence: `shard`, gather inputs of products again in the backward pass; `full`, keep them">,
  ];
  let dependentDialects = ["::cleave::dist::DistDialect"];
}

def StrategyShardPass : Pass<"strategy-shard", "::mlir::ModuleOp"> {
  let summary = "Split parameters as a person asks";
  let description = [{
    Reads the module's `nn.shard`, a list of overrides, and removes it. Each has
    `match`, a pattern of whole parameter names, `dims`, the axes of each
    dimension, and perhaps `view`, the dimensions that `dims` speaks of where they
    are not those of the file. It wins over what other strategies placed, for the
    parameter, its gradient and its state; `strategy-data` comes after and goes on
    from there.

    Errors: a pattern that matches nothing, two that disagree, an axis that is
    unknown or used twice, a sub-axis that does not divide, a wrong rank, a
    dimension that the program sees in parts which the axes do not split.

    Before:
    ```mlir
    module attributes {nn.shard = [#nn.shard<match = ".*head", dims = [#dist.axes<{"tensor"}>, #dist.axes<{}>]> ]} {
      dist.mesh @mesh <["tensor"=2]>
      func.func private @f(tensor<6x10xf32> {nn.name = "head", nn.role = #nn.role<parameter>})
    }
    ```

    After:
    ```mlir
    dist.mesh @mesh <["tensor"=2]>
    func.func private @f(tensor<6x10xf32> {dist.sharding = #dist.sharding<@mesh, [{"tensor"}, {} ]>,
                                           nn.name = "head", nn.role = #nn.role<parameter>})
    ```
  }];
  let dependentDialects = ["::cleave::dist::DistDialect"];
}

def StrategyZigzagPass : Pass<"strategy-zigzag", "::mlir::ModuleOp"> {
  let summary = "Put positions into an order in which causal attention costs all ranks of a ring the same";
  let description = [{
    In their own order the last of `ranks` tiles of positions sees all keys and
    the first one only its own. Here a tile has two runs, one from each half of
    the sequence, that see as many together as those of any other tile: the early
    runs go from the last rank to the first, the late ones from the first to the
    last (Llama 3, 2024, section 3.3.2, has it the other way round; so padding
    stays at the very end).

        8 positions, 2 ranks:   2 3 4 5 | 0 1 6 7

    All values that causal attention reads positions of, and all that they are computed
    from, are in that order. Arguments, index grids and constants are put into it
    where they enter, by `nn.gather` with computed indices, labels among them;
    results are put back where they leave. Causal attention gets positions, if it
    went by indices. So the function computes what it did before, and sums over
    positions are the same sums.

    A remark says why nothing is done: an operation that depends on the order of
    positions in another way (a slice, a convolution, dropout), or too few of them.
    Functions without causal attention, or with windows alone, stay as they are.

    Before:
    ```mlir
    func.func @f(%x: tensor<1x8x1x1x2xf32>, %k: tensor<1x8x1x2xf32>) -> tensor<1x8x1x1x2xf32> {
      %o, %lse = nn.attention %x, %k, %k scale = 0.5 causal : (tensor<1x8x1x1x2xf32>, tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> (tensor<1x8x1x1x2xf32>, tensor<1x1x1x8xf32>)
      return %o : tensor<1x8x1x1x2xf32>
    }
    ```

    After, in short (`order` and `back` stand for arithmetic on an index grid):
    ```
    %x1 = nn.gather %x, %order dim = 1
    %k1 = nn.gather %k, %order dim = 1
    %o, %lse = nn.attention %x1, %k1, %k1 positions(%order, %order) scale = 0.5 causal
    %o1 = nn.gather %o, %back dim = 1
    ```
  }];
  let options = [
    Option<"ranks", "ranks", "int64_t", "1", "Ranks of the ring.">,
  ];
  let dependentDialects = ["::cleave::nn::NNDialect"];
}

def StrategySequencePass : Pass<"strategy-sequence", "::mlir::ModuleOp"> {
  let summary = "Split the positions of attention: heads inside, or a ring";
  let description = [{
    `strategy-data` splits the positions of all values over `ring` and then `ulysses`;
    attention, in which positions meet, is what is left to say. With
    `ulysses` (Jacobs et al., 2023), positions are whole over that axis inside every
    `nn.attention` and `nn.attention_grad` and heads are split instead: constraints
    before and behind the operation, between which partitioning finds the
    all-to-alls. What the backward pass reads is saved as it lies inside. The ranks
    share the KV heads and the query heads of each, (a ways) x (b ways), so that
    padding is least, then a the largest: with fewer KV heads than ranks, keys and
    values are copied b times. Heads that `feature-axes` split already are
    split further.

    With `ring`, attention that compares positions gets them as operands, so that no
    mask counts on the index in a tile; positions of queries and keys stay split by
    that axis, and the rule of attention finds the ring (Liu et al., 2023).

    The gradient of a table with a row for each position is made a sum over positions
    (`nn.scatter_add`), as that of other tables is: each rank has its addend.

    Errors: no positions to split; fewer heads than ranks of `ulysses`; attention
    whose scores are a tensor of their own.

    Before:
    ```mlir
    dist.mesh @mesh <["u"=2]>
    func.func @forward(%q: tensor<2x4x2x1x8xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>})
        -> tensor<2x4x2x1x8xf32> {
      %k = nn.reshape %q : tensor<2x4x2x1x8xf32> -> tensor<2x4x2x8xf32>
      %o, %lse = nn.attention %q, %k, %k scale = 0.5 causal
        : (tensor<2x4x2x1x8xf32>, tensor<2x4x2x8xf32>, tensor<2x4x2x8xf32>) -> (tensor<2x4x2x1x8xf32>, tensor<2x2x1x4xf32>)
      return %o : tensor<2x4x2x1x8xf32>
    }
    ```

    After, with ulysses = u (of keys and values one is shown):
    ```mlir
    dist.mesh @mesh <["u"=2]>
    func.func @forward(%q: tensor<2x4x2x1x8xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>})
        -> tensor<2x4x2x1x8xf32> {
      %k = nn.reshape %q : tensor<2x4x2x1x8xf32> -> tensor<2x4x2x8xf32>
      %0 = dist.constrain %q <@mesh, [{?}, {"u"}, {?}, {?}, {?} ]> : tensor<2x4x2x1x8xf32>
      %1 = dist.constrain %0 <@mesh, [{?}, {}, {"u", ?}, {?}, {?} ]> : tensor<2x4x2x1x8xf32>
      %2 = dist.constrain %k <@mesh, [{?}, {"u"}, {?}, {?} ]> : tensor<2x4x2x8xf32>
      %3 = dist.constrain %2 <@mesh, [{?}, {}, {"u", ?}, {?} ]> : tensor<2x4x2x8xf32>
      %o, %lse = nn.attention %1, %3, %3 scale = 0.5 causal
        : (tensor<2x4x2x1x8xf32>, tensor<2x4x2x8xf32>, tensor<2x4x2x8xf32>) -> (tensor<2x4x2x1x8xf32>, tensor<2x2x1x4xf32>)
      %4 = dist.constrain %o <@mesh, [{?}, {}, {"u", ?}, {?}, {?} ]> : tensor<2x4x2x1x8xf32>
      %5 = dist.constrain %4 <@mesh, [{?}, {"u"}, {?}, {?}, {?} ]> : tensor<2x4x2x1x8xf32>
      return %5 : tensor<2x4x2x1x8xf32>
    }
    ```
  }];
  let options = [
    Option<"ulysses", "ulysses", "std::string", "\"\"", "Mesh axis of Ulysses, inside the ring">,
    Option<"ring", "ring", "std::string", "\"\"", "Mesh axis of the ring">,
    ListOption<"featureAxes", "feature-axes", "std::string",
               "Mesh axes of tensor parallelism that split heads">,
  ];
  let dependentDialects = ["::cleave::dist::DistDialect", "::cleave::nn::NNDialect"];
}

def StrategyExpertPass : Pass<"strategy-expert", "::mlir::ModuleOp"> {
  let summary = "Lay experts over an axis";
  let description = [{
    The matrices that rows choose (`nn.grouped_dot`), and tables that are read by
    the same choice (biases of experts, by `nn.gather`), are split along the experts
    over `axis`, in front of what other strategies split there, with their
    gradients and state. The axis splits samples as well (`strategy-data` comes
    after), and a rank's gradient of its experts is complete over it.

    Products read the matrices whole over the axis, by a constraint in front of
    each: exact by itself. `dist-dispatch-experts` sends rows to the matrices instead
    when programs are local.

    With `tensor-axis` the inner width of experts (the dimension of matrices and biases
    that only experts have) is split over that axis, and nothing else of them over
    the axes that other strategies have chosen. `axis` may be absent then.

    Errors: fewer experts than ranks, a width that cannot be split, matrices that
    something reads whole, and, with `required`, a program without experts.

    Before:
    ```mlir
    dist.mesh @mesh <["expert"=2]>
    func.func @forward(%x: tensor<4x6xf32> {nn.name = "x", nn.role = #nn.role<input>}, %ids: tensor<4xi64> {nn.name = "ids", nn.role = #nn.role<input>},
                       %w: tensor<4x6x8xf32> {nn.name = "w", nn.role = #nn.role<parameter>}) -> tensor<4x8xf32> {
      %0 = nn.grouped_dot %x, %w, %ids : tensor<4x6xf32>, tensor<4x6x8xf32>, tensor<4xi64> -> tensor<4x8xf32>
      return %0 : tensor<4x8xf32>
    }
    ```

    After:
    ```mlir
    dist.mesh @mesh <["expert"=2]>
    func.func @forward(%x: tensor<4x6xf32> {nn.name = "x", nn.role = #nn.role<input>}, %ids: tensor<4xi64> {nn.name = "ids", nn.role = #nn.role<input>},
                       %w: tensor<4x6x8xf32> {dist.sharding = #dist.sharding<@mesh, [{"expert"}, {}, {} ]>, nn.name = "w", nn.role = #nn.role<parameter>})
        -> tensor<4x8xf32> {
      %0 = dist.constrain %w <@mesh, [{}, {?}, {?} ]> purpose expert : tensor<4x6x8xf32>
      %1 = nn.grouped_dot %x, %0, %ids : tensor<4x6xf32>, tensor<4x6x8xf32>, tensor<4xi64> -> tensor<4x8xf32>
      return %1 : tensor<4x8xf32>
    }
    ```
  }];
  let options = [
    Option<"axis", "axis", "std::string", "\"expert\"", "Mesh axis to lay experts over">,
    Option<"tensorAxis", "tensor-axis", "std::string", "\"\"",
           "Mesh axis of the experts' inner width; empty: as other strategies split it">,
    Option<"required", "required", "bool", "false", "A program without experts is an error">,
  ];
  let dependentDialects = ["::cleave::dist::DistDialect", "::cleave::nn::NNDialect"];
}

def StrategyDataPass : Pass<"strategy-data", "::mlir::ModuleOp"> {
  let summary = "Split the batch, and the positions";
  let description = [{
    The batch dimension (`nn.batch_dim`) of the inputs of a microbatch lies over
    `batch-axes`, and the dimension that counts positions (of the tokens the one
    beside the batch, of others what factors connect with it) over `sequence-axes`;
    an input without either is whole on every rank. Each rank adds
    up the gradients, the loss and the weight of its samples and positions: at the boundary
    between `@loss_grad` and `@update` they are partial sums over all these axes, so
    that they are reduced once per step, whatever the number of microbatches. (With one
    microbatch and without ZeRO, `@loss_grad` reduces each gradient where it is complete,
    so that it travels while the next ones are computed.) In `@update` a constraint asks for the reduced gradient, in the parameter's sharding
    or, from `zero` 1 on, in the optimizer state's: there the reduction is a
    reduce-scatter, and the new parameter is gathered (Rajbhandari et al.,
    2020). State is then split further along the dimension that pads least
    (the first of equals); one that another axis splits already must divide.
    A parameter of which no dimension qualifies stays as it is, with all that
    belongs to it.

    With `zero` 2, gradients lie like the state: `@loss_grad` reduces and scatters
    each where it is complete, and adds up tiles over microbatches. That costs a
    reduce-scatter per microbatch; with several, `zero2-reduce` = per_step adds
    up whole gradients instead and reduces once, which is what `zero` 1 does.
    With `zero` 3, parameters lie like the state, too, frozen ones included;
    constraints ask for them whole where they are read, and nothing is gathered
    after the update. `nn-choose-residuals` decides how long gathered
    parameters live.

    ZeRO splits over all these axes together but those of `replicate`, over which
    gradients stay partial sums until `@update`: hybrid sharding. A parameter that
    lies over one of them already is split over the others.

    Before:
    ```mlir
    dist.mesh @mesh <["data"=2, "tensor"=2]>
    func.func @update(%w: tensor<6x10xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"tensor"} ]>,
                                            nn.name = "w", nn.role = #nn.role<parameter>},
                      %v: tensor<6x10xf32> {nn.name = "w.velocity", nn.role = #nn.role<state>},
                      %g: tensor<6x10xf32> {nn.name = "w", nn.role = #nn.role<gradient>},
                      %scale: tensor<f32>, %lr: tensor<f32> {nn.name = "lr", nn.role = #nn.role<lr>})
        -> (tensor<6x10xf32>, tensor<6x10xf32>) {
      %w1, %v1 = nn.sgd %w, %v, %g, %scale, %lr momentum = 0.9 weight_decay = 0.0 : tensor<6x10xf32>, tensor<f32>
      return %w1, %v1 : tensor<6x10xf32>, tensor<6x10xf32>
    }
    ```

    After, with zero = 1 (results are annotated like the arguments):
    ```mlir
    dist.mesh @mesh <["data"=2, "tensor"=2]>
    func.func @update(%w: tensor<6x10xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"tensor"} ]>,
                                            nn.name = "w", nn.role = #nn.role<parameter>},
                      %v: tensor<6x10xf32> {dist.sharding = #dist.sharding<@mesh, [{"data"}, {"tensor"} ]>,
                                            nn.name = "w.velocity", nn.role = #nn.role<state>},
                      %g: tensor<6x10xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"tensor"} ], partial = sum{"data"}>,
                                            nn.name = "w", nn.role = #nn.role<gradient>},
                      %scale: tensor<f32>, %lr: tensor<f32> {nn.name = "lr", nn.role = #nn.role<lr>})
        -> (tensor<6x10xf32>, tensor<6x10xf32>) {
      %0 = dist.constrain %w <@mesh, [{"data"}, {"tensor"} ]> : tensor<6x10xf32>
      %1 = dist.constrain %g <@mesh, [{"data"}, {"tensor"} ]> : tensor<6x10xf32>
      %w1, %v1 = nn.sgd %0, %v, %1, %scale, %lr momentum = 0.9 weight_decay = 0.0 : tensor<6x10xf32>, tensor<f32>
      return %w1, %v1 : tensor<6x10xf32>, tensor<6x10xf32>
    }
    ```
  }];
  let options = [
    ListOption<"batchAxes", "batch-axes", "std::string",
               "Mesh axes that split the samples, slowest first; without any, and without sequence axes, `data`">,
    ListOption<"sequenceAxes", "sequence-axes", "std::string",
               "Mesh axes that split the positions, slowest first">,
    ListOption<"replicate", "replicate", "std::string",
               "Those of them over which ZeRO keeps replicas: hybrid sharding">,
    Option<"zero", "zero", "int64_t", "0",
           "0: all is replicated; 1: state is split; 2: and gradients; 3: and parameters">,
    Option<"zero2Reduce", "zero2-reduce", "std::string", "\"per_step\"",
           "When ZeRO 2 reduces: per_step | per_microbatch">,
  ];
  let dependentDialects = ["::cleave::dist::DistDialect"];
}

#endif
