// Strategies of the shard phase, in the order in which they run.

#ifndef CLEAVE_STRATEGY_PASSES_TD
#define CLEAVE_STRATEGY_PASSES_TD

include "mlir/Pass/PassBase.td"

def StrategyTensorPass : Pass<"strategy-tensor", "::mlir::ModuleOp"> {
  let summary = "Shard every contraction with a parameter once, at the least communication (tensor parallelism)";
  let description = [{
    The pass finds Megatron's tensor parallelism (Shoeybi et al., 2019) from the
    graph, without names. The pass divides the dimensions of all values into
    classes: two dimensions are in the same class if some operation's sharding
    rule assigns the same factor to both. Classes are, for example, the heads of
    a layer, the width of an MLP, the vocabulary, or the hidden size of all
    layers. A class is a candidate if it occurs in a parameter, in no input, at
    most once in any tensor, and if no operation needs it unsharded. The pass
    chooses candidates one after another, each time the one that divides the
    most contraction FLOPs among the ranks for each byte of communication that
    it causes. It stops when every contraction with a parameter is divided, or
    when the next candidate would cause more than 32 times as many bytes per
    FLOP as the best chosen class that causes any communication. In a
    transformer the chosen classes are heads, MLP width and vocabulary; the
    hidden size stays unsharded. A class whose dimensions padding would enlarge
    by more than half is not chosen. (With 2 KV heads on 4 ranks, the query
    heads of each KV head are sharded instead, and a remark or warning names the
    parameters that stay replicated.)

    In the following table, *chosen* dimensions are those of the chosen classes, and *hidden* dimensions
    are the other dimensions of the same parameters (the hidden size). *in* is the dimension of a
    parameter that the product contracts, *out* the dimension that the result has. The 2d, 2.5d and 3d
    layouts shard the hidden dimensions, too, and the batch of all values. The pass puts constraints on
    operands and results to fix the layout of each product with a parameter:

    | layout | between products | a parameter [in, out] is stored as | during a product |
    |---|---|---|---|
    | 1d | hidden size unsharded, chosen dimensions by `axis` | chosen by `axis` | the same |
    | 1d, sequence | as 1d, and positions by `axis` in values without a chosen dimension | chosen by `axis` | positions gathered |
    | 2d [row, col] | batch by row, features by col | in by row, out by col | in gathered |
    | 2.5d [depth, row, col] | batch by depth and row, features by col | as 2d, replicated over depth | as 2d |
    | 3d [i, j, k] | batch by i, j and hidden by k, or batch by i, k and chosen by j | hidden by k, chosen by j, in by i too | batch by i, in not by i |

    In 2d and 2.5d, the parameters and inputs of products are gathered a second time in the backward
    pass. In 3d, the gathered tensors are saved for the backward pass. In 1d with sequence,
    `saved-input` selects one of these two. Vectors (biases, gains) are sharded like the features to
    which they are added or with which they are multiplied. Gradients are passed from `@loss_grad` to
    `@update` as partial sums over those axes that shard samples or positions but not the parameter.

    In the 1d layout without Megatron's sequence parallelism (`sequence` is
    false), the pass places no constraints: it only shards the arguments that
    are parameters, with the same shardings in all functions.

    Before:
    ```mlir
    dist.mesh @mesh <["tensor"=2]>
    func.func private @loss_grad(tensor<6x10xf32> {nn.name = "w", nn.role = #nn.role<parameter>})
    ```

    After, if the dimension of size 10 is the width of an MLP:
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
               "Mesh axes that shard the batch before those of the layout">,
    ListOption<"sequenceAxes", "sequence-axes", "std::string",
               "Mesh axes that shard the positions before those of the layout, and also during products">,
    Option<"sequence", "sequence", "bool", "false",
           "1d: shard the positions between products, too (Megatron's sequence parallelism)">,
    Option<"savedInput", "saved-input", "std::string", "\"shard\"",
           "1d with sequence: `shard`: gather inputs of products again in the backward pass; `full`: save them gathered">,
  ];
  let dependentDialects = ["::cleave::dist::DistDialect"];
}

def StrategyShardPass : Pass<"strategy-shard", "::mlir::ModuleOp"> {
  let summary = "Apply the shardings of parameters that the user gives";
  let description = [{
    Reads and removes the attribute `nn.shard` of the module, a list of
    shardings that the user gives. Each entry has `match` (a pattern that must
    match a whole parameter name), `dims` (the mesh axes of each dimension) and
    optionally `view` (the sizes of the dimensions that `dims` refers to, if
    they are not those that the parameter has in the model file). An entry
    replaces the sharding that other strategies gave to the parameter, its
    gradient and its optimizer state. `strategy-data` runs afterwards and shards
    these tensors further.

    These are errors: a pattern that matches no parameter; two entries that give a parameter different
    shardings; an axis that is unknown or used twice; a sub-axis that does not divide its axis; a number
    of dimensions other than the parameter's; and axes that do not divide the parts of a dimension that
    the program views as several parts.

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
  let summary = "Reorder positions so that causal attention costs all ranks of a ring the same (zig-zag)";
  let description = [{
    If each of `ranks` ranks holds a tile of consecutive positions, the queries of the last rank attend
    to all keys, but those of the first rank only to the keys of its own tile. In zig-zag order each
    tile has two runs of consecutive positions, one from each half of the sequence, and the queries of
    each tile attend to the same number of keys. The runs of the first half are assigned to the ranks
    from the last to the first, the runs of the second half from the first to the last. (Llama 3, 2024,
    section 3.3.2, assigns them the other way round; with the order of this pass, padding stays at the
    end of the sequence.)

        8 positions, 2 ranks:   2 3 4 5 | 0 1 6 7

    Zig-zag order applies to all values whose positions causal attention reads, and to all values from
    which these are computed. Arguments (including labels), index grids and constants are reordered
    before their first use, by `nn.gather` with computed indices; results are put back in the order of
    the sequence. Causal attention whose positions were the indices of its operands gets the positions
    as operands. So the function computes the same results, and sums over positions have the same terms
    in another order.

    If a function has causal attention but cannot be reordered, a warning says why: an operation depends
    on the order of positions in another way (a slice, a convolution, dropout), or there are too few
    positions. Functions without causal attention, or only with sliding windows, stay as they are.

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
  let summary = "Shard attention for sequence parallelism: by heads (Ulysses) or as ring attention";
  let description = [{
    `strategy-data` shards the positions of all values over the axes `ring` and
    then `ulysses`. Only attention combines different positions, and this pass
    decides how attention is sharded. With `ulysses` (Jacobs et al., 2023),
    positions are unsharded over the axis `ulysses` inside every `nn.attention`
    and `nn.attention_grad`, and heads are sharded instead: the pass places
    constraints before and after the operation, and partitioning inserts an
    all-to-all between each two of them. The tensors that the forward pass of
    attention saves for its backward pass are saved as attention uses them,
    sharded by heads. The KV heads are divided among `m` groups of ranks, and
    the query heads of each KV head among the `n` ranks of a group, where
    `m * n` is the number of ranks. Of all such pairs of `m` and `n`, the pass
    uses one with the least padding, and if there are several, the one with the
    largest `m`. With fewer KV heads than ranks, keys and values are replicated
    on the `n` ranks of a group. Heads that `feature-axes` shard already are
    sharded further.

    With `ring`, attention that compares positions (causal or sliding-window attention) gets the
    positions as operands, so that its mask does not depend on the index within a tile. Queries and keys
    stay sharded by positions over the axis `ring`. Partitioning then all-gathers the keys and values;
    `dist-decompose` replaces these all-gathers by ring attention (Liu et al., 2023).

    The gradient of an embedding table with a row for each position is rewritten
    to an `nn.scatter_add` over positions, like the gradient of other embedding
    tables, so that each rank has a partial sum.

    These are errors: a program without positions to shard; fewer heads than ranks of `ulysses`; and
    attention that is not an `nn.attention`, but several operations that compute its scores as a tensor.

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

    After, with `ulysses=u`. The pass constrains keys and values separately; in
    this short form, %2 and %3 stand for both:
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
               "Mesh axes of tensor parallelism that shard heads">,
  ];
  let dependentDialects = ["::cleave::dist::DistDialect", "::cleave::nn::NNDialect"];
}

def StrategyExpertPass : Pass<"strategy-expert", "::mlir::ModuleOp"> {
  let summary = "Shard experts over a mesh axis";
  let description = [{
    Shards the experts' matrices (operands of `nn.grouped_dot`), and the
    experts' biases (tables from which `nn.gather` reads rows by the same expert
    ids). In these parameters, their gradients and their optimizer state, the
    dimension that enumerates the experts is sharded over `axis`, which precedes
    the axes of other strategies. `strategy-data`, which runs later, shards the
    samples over `axis` as well. Still the gradients of experts need no
    reduction over `axis` in the end, because each rank gets the tokens of its
    experts from all ranks along `axis`.

    The pass puts a constraint on the matrix operand of each `nn.grouped_dot`, so that the
    operation reads the matrices gathered over `axis`. The program is correct in this form,
    but sends the matrices. Later `dist-dispatch-experts` replaces the gather: it sends the
    tokens to the ranks that have the matrices.

    With `tensor-axis`, the inner width of experts (the dimension of matrices and biases that occurs
    only inside experts) is sharded over `tensor-axis`, and no other dimension of the matrices and
    biases is sharded over the axes of other strategies. With `tensor-axis`, `axis` may be absent.

    These are errors: fewer experts than ranks of `axis`; an inner width that cannot be sharded; an
    operation that needs the matrices of all experts unsharded; and, with `required`, a program without
    experts.

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
    Option<"axis", "axis", "std::string", "\"expert\"", "Mesh axis over which experts are sharded">,
    Option<"tensorAxis", "tensor-axis", "std::string", "\"\"",
           "Mesh axis of the experts' inner width; empty: as other strategies shard it">,
    Option<"required", "required", "bool", "false", "A program without experts is an error">,
  ];
  let dependentDialects = ["::cleave::dist::DistDialect", "::cleave::nn::NNDialect"];
}

def StrategyDataPass : Pass<"strategy-data", "::mlir::ModuleOp"> {
  let summary = "Shard the batch and the positions (data parallelism, ZeRO)";
  let description = [{
    The batch dimension (`nn.batch_dim`) of a microbatch's inputs is sharded over `batch-axes`. The
    dimension of positions is sharded over `sequence-axes`. For tokens, it is the dimension other than
    the batch; for other inputs, it is the dimension that sharding rules connect with the positions of
    the tokens by common factors. An input with neither samples nor positions is replicated. Each rank
    adds up the gradients, the loss and the weight (the number of counted labels) of its samples and
    positions. `@loss_grad` passes these to `@update` as partial sums over the batch and sequence axes,
    so that they are reduced once per step, whatever the number of microbatches. (With one microbatch
    and without ZeRO, `@loss_grad` reduces each gradient as soon as it is complete, so that the
    reduction overlaps with the computation of other gradients.)

    In `@update` a constraint requests the reduced gradient, with `zero` 0 in
    the parameter's sharding, and with `zero` 1 or more in the sharding of the
    optimizer state. With `zero` 1 or more, the reduction is therefore a
    reduce-scatter, and with `zero` 1 and 2 the new parameter is gathered after
    the update (Rajbhandari et al., 2020). The optimizer state is sharded like
    the parameter, and further along the dimension that needs the least padding
    (the first of several equal ones). A dimension along which the parameter
    itself is sharded is used only if it divides evenly. If a parameter has no
    usable dimension, its optimizer state and gradient are not sharded further.

    With `zero` 2, gradients are sharded like the optimizer state: `@loss_grad`
    reduce-scatters each gradient as soon as it is complete, and accumulates the
    tiles over microbatches. This costs one reduce-scatter per microbatch. With
    `zero2-reduce` = per_step and several microbatches, unsharded gradients are
    accumulated instead and reduced once, as with `zero` 1. With `zero` 3,
    parameters, including frozen ones, are also sharded like the optimizer
    state. Constraints gather these parameters where they are read, and nothing
    is gathered after the update. `nn-choose-residuals` decides how long
    gathered parameters are kept.

    ZeRO shards over all batch and sequence axes except those in `replicate`, over which gradients stay
    partial sums until `@update` (hybrid sharding). If one of these axes shards a parameter already,
    ZeRO shards this parameter over the other axes.

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
               "Mesh axes that shard the samples, slowest first; without any, and without sequence axes, `data`">,
    ListOption<"sequenceAxes", "sequence-axes", "std::string",
               "Mesh axes that shard the positions, slowest first">,
    ListOption<"replicate", "replicate", "std::string",
               "Those of these axes over which ZeRO replicates: hybrid sharding">,
    Option<"zero", "zero", "int64_t", "0",
           "0: all is replicated; 1: state is sharded; 2: gradients, too; 3: parameters, too">,
    Option<"zero2Reduce", "zero2-reduce", "std::string", "\"per_step\"",
           "When ZeRO 2 reduces: per_step | per_microbatch">,
  ];
  let dependentDialects = ["::cleave::dist::DistDialect"];
}

#endif
