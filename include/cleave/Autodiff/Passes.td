// Passes of the train phase.

#ifndef CLEAVE_AUTODIFF_PASSES_TD
#define CLEAVE_AUTODIFF_PASSES_TD

include "mlir/Pass/PassBase.td"

def AddLossPass : Pass<"nn-add-loss", "::mlir::ModuleOp"> {
  let summary = "Derive @loss (a loss sum and its weight) from @forward";
  let description = [{
    `@forward` returns outputs. Training needs the sum of the losses of all counted
    labels, and the number of these labels (the weight): sums and weights add up over
    microbatches and ranks, and `@update` divides the sum by the weight once. The loss
    `cross_entropy` adds an argument `labels` with one class index for each row of the
    logits. `mse` adds an argument `labels` of the output's shape. `output:NAME` uses a
    scalar output as the loss. This output may be a mean, that is, a sum divided by a
    constant or by a count that is computed from the inputs. The pass splits such a mean
    into sum and weight.

    With several microbatches, the scalar output must be the loss of all samples of the
    step. For this, the importer adds `@forward_step`, a version of `@forward` for all
    samples of the step; the difference between the two shows how each value depends on
    the number of samples. (If a microbatch has only one sample, `@forward_other`, a
    version for another number of samples, helps to distinguish numbers of samples from
    other constants.) A reduction over samples gives a partial sum in each microbatch, and
    so does an operation that is linear in partial sums. A value that depends on inputs
    alone (such as a count, its root, its maximum with a constant, or class weights) is
    computed from the inputs of the whole step, which become arguments marked
    `nn.whole_step`. If the loss is not a sum over samples in this sense, the pass reports
    an error that names the node. With `cross_entropy` and `mse`, an output that mixes
    samples is an error, too. Without `@forward_step` the pass only splits a sum that is
    divided by a constant or by a count.

    Parameters that `trainable` does not match, or that `frozen` matches, become constants marked
    `nn.frozen`. Parameters on which the loss does not depend through floating-point values become
    such constants, too, with a warning. `@forward` is kept.

    Before:
    ```mlir
    func.func @forward(%w: tensor<3x7xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                       %x: tensor<2x3xf32> {nn.name = "x", nn.role = #nn.role<input>})
        -> (tensor<2x7xf32> {nn.name = "logits", nn.role = #nn.role<output>}) {
      %0 = nn.einsum "bh,hv->bv" %x, %w : tensor<2x3xf32>, tensor<3x7xf32> -> tensor<2x7xf32>
      return %0 : tensor<2x7xf32>
    }
    ```

    After (beside `@forward`):
    ```mlir
    func.func @loss(%w: tensor<3x7xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                    %x: tensor<2x3xf32> {nn.name = "x", nn.role = #nn.role<input>},
                    %labels: tensor<2xi64> {nn.name = "labels", nn.role = #nn.role<labels>})
        -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
      %0 = nn.einsum "bh,hv->bv" %x, %w : tensor<2x3xf32>, tensor<3x7xf32> -> tensor<2x7xf32>
      %loss, %lse = nn.cross_entropy %0, %labels ignore_index = -100
        : (tensor<2x7xf32>, tensor<2xi64>) -> (tensor<2xf32>, tensor<2xf32>)
      %1 = nn.reduce sum %loss dims = [0] : tensor<2xf32> -> tensor<f32>
      %ignore = arith.constant dense<-100> : tensor<2xi64>
      %2 = arith.cmpi ne, %labels, %ignore : tensor<2xi64>
      %3 = arith.uitofp %2 : tensor<2xi1> to tensor<2xf32>
      %4 = nn.reduce sum %3 dims = [0] : tensor<2xf32> -> tensor<f32>
      return %1, %4 : tensor<f32>, tensor<f32>
    }
    ```
  }];
  let options = [
    Option<"loss", "loss", "std::string", "\"cross_entropy\"", "cross_entropy, mse or output:NAME">,
    Option<"logits", "logits", "std::string", "\"\"",
           "Name of the output that the loss reads; needed where several could be meant">,
    Option<"ignoreIndex", "ignore-index", "int64_t", "-100", "Label that is not counted">,
    Option<"microbatches", "microbatches", "int64_t", "1", "Microbatches of a step, whose losses add up">,
    Option<"sharedSlots", "shared-slots", "bool", "false",
           "Samples of a microbatch share the experts' capacity, as configured: outputs may mix them">,
    ListOption<"trainable", "trainable", "std::string", "Patterns of parameters to train; none: all">,
    ListOption<"frozen", "frozen", "std::string", "Patterns of parameters not to train">,
  ];
  let dependentDialects = ["::cleave::nn::NNDialect", "::mlir::arith::ArithDialect"];
}

def AddDropoutPass : Pass<"nn-add-dropout", "::mlir::ModuleOp"> {
  let summary = "Derive @loss_train, with dropout, from @loss";
  let description = [{
    Exporters remove dropout. If the configuration asks for it, this pass inserts dropout where models
    usually have it: on branches that are added to the residual stream, on the embedding that the stream
    begins with (or the sum of several embeddings), and on attention weights. Of attention, only
    `nn.attention` gets dropout, not attention that was not recognised as one operation (because of a
    trained bias, for example). A remark gives the number of dropouts.

    Branches are found as follows. An operand of a sum is a branch if it is
    computed from the other operand of the sum, or from a term of the other
    operand. The computation must contain a contraction with a weight (frozen or
    not), and must not pass through another sum with a branch. So the terms of a
    rotary embedding, gates, scores, biases and masks are not branches. If a sum
    adds two residual streams, neither is a branch, because neither is computed
    from the other. The same is true for the two operands of a sum with a
    projected shortcut. A sum that no later contraction with a weight reads is a
    prediction and gets no dropout. The dropouts are numbered in program order.
    The samples must be a dimension of the dropped value, or the outer factor of
    a merged dimension; otherwise the pass reports an error.

    The dropout masks depend on the seed, the step and the global index of the sample, which become
    arguments. `nn.attention` gets dropout keys (hashes of these arguments, of the dropout's number and
    of the head) and the indices of its queries and keys. `@loss`, without dropout, is kept for
    validation; `nn-differentiate` then starts from `@loss_train`.

    Before:
    ```mlir
    %1 = nn.einsum "bh,hk->bk" %0, %w : tensor<2x3xf32>, tensor<3x3xf32> -> tensor<2x3xf32>
    %2 = arith.addf %x, %1 : tensor<2x3xf32>
    ```

    After:
    ```mlir
    %1 = nn.einsum "bh,hk->bk" %0, %w : tensor<2x3xf32>, tensor<3x3xf32> -> tensor<2x3xf32>
    %d = nn.dropout %1, %seed, %step, %sample_ids p = 0.1 op_id = 0 global_shape = [2, 3] : tensor<2x3xf32>, tensor<2xi64>
    %2 = arith.addf %x, %d : tensor<2x3xf32>
    ```
  }];
  let options = [Option<"p", "p", "double", "0.0", "Probability that an element becomes zero; 0: no dropout">];
  let dependentDialects = ["::cleave::nn::NNDialect"];
}

def AddRouterLossesPass : Pass<"nn-add-router-losses", "::mlir::ModuleOp"> {
  let summary = "Derive @loss_train, with router losses, from @loss";
  let description = [{
    A router that sends all tokens to a few experts trains only these experts. `balance` is the factor
    of the load balancing loss. For a router, this loss is the number of experts times the sum over
    experts of (the expert's share of the load * its mean share of the scores), which is 1 if all
    experts have equal loads. The scores of a token are the softmax of the logits, or their sigmoids
    divided by the sum of the sigmoids. Loads and scores are taken over the tokens of one sample (scope
    `sequence`), or of the microbatch on all ranks (scope `microbatch`). `squares` is the factor of the
    z-loss: the mean over tokens of logsumexp(logits)^2, which keeps logits small.

    Both router losses are means over samples. Each sample is weighted by the number of its counted
    labels, so that the sums add up over microbatches and ranks, and `@update` divides once by the
    number of counted labels. With scope `sequence` the losses do not depend on how samples are
    distributed over ranks and microbatches. A bias that only affects the choice of experts is not part
    of the scores. `@loss`, without router losses, is kept for validation. The grouped products of
    `@loss` must read ids from `nn.top_k` or `nn.argmax`.

    Before:
    ```mlir
    %0 = nn.einsum "abc,cd->abd" %x, %router : tensor<2x3x5xf32>, tensor<5x4xf32> -> tensor<2x3x4xf32>
    %p = nn.softmax %0 : tensor<2x3x4xf32>
    %id = nn.argmax %p dim = 2 : tensor<2x3x4xf32> -> tensor<2x3xi64>
    %y = nn.grouped_dot %x, %w, %id : tensor<2x3x5xf32>, tensor<4x5x7xf32>, tensor<2x3xi64> -> tensor<2x3x7xf32>
    ```

    After (`balance=0.01 scope=microbatch`, in `@loss_train`):
    ```mlir
    %1 = arith.uitofp %counted : tensor<2x3xi1> to tensor<2x3xf32>
    %2 = nn.iota dim = 0 : tensor<4xi64>
    %3 = nn.broadcast %2 dims = [2] : tensor<4xi64> -> tensor<2x3x4xi64>
    %4 = nn.broadcast %id dims = [0, 1] : tensor<2x3xi64> -> tensor<2x3x4xi64>
    %5 = arith.cmpi eq, %4, %3 : tensor<2x3x4xi64>
    %6 = arith.uitofp %5 : tensor<2x3x4xi1> to tensor<2x3x4xf32>
    %7 = nn.reduce sum %6 dims = [0, 1] : tensor<2x3x4xf32> -> tensor<4xf32>
    %8 = nn.reduce sum %p dims = [0, 1] : tensor<2x3x4xf32> -> tensor<4xf32>
    %9 = arith.mulf %7, %8 : tensor<4xf32>
    %10 = nn.reduce sum %9 dims = [0] : tensor<4xf32> -> tensor<f32>
    %11 = nn.reduce sum %1 dims = [0, 1] : tensor<2x3xf32> -> tensor<f32>
    %12 = arith.mulf %10, %11 : tensor<f32>
    %factor = arith.constant dense<0.00111111114> : tensor<f32>
    %13 = arith.mulf %12, %factor : tensor<f32>
    %14 = arith.addf %loss, %13 : tensor<f32>
    ```
  }];
  let options = [
    Option<"balance", "balance", "double", "0.0", "Factor of the load balancing loss">,
    Option<"squares", "squares", "double", "0.0", "Factor of the z-loss, the squared logsumexp of logits">,
    Option<"scope", "scope", "std::string", "\"sequence\"", "sequence or microbatch">,
    Option<"ignoreIndex", "ignore-index", "int64_t", "-100", "Label that is not counted">,
  ];
  let dependentDialects = ["::cleave::nn::NNDialect", "::mlir::arith::ArithDialect"];
}

def CountChoicesPass : Pass<"nn-count-choices", "::mlir::ModuleOp"> {
  let summary = "Derive @loss_train, which counts the choices of each expert, from @loss";
  let description = [{
    For each choice of experts (the ids of an `nn.grouped_dot`), the number of
    tokens that chose each expert becomes a result of role `accumulator`, named
    `ROUTER.chosen`. If `nn-limit-choices` may have dropped choices, another
    result, `ROUTER.taken`, counts the pairs of a token and a chosen expert that
    were not dropped. ROUTER is the name of the router's matrix without
    `.weight`, or the name of the node that chooses experts. The results have
    this name in their attribute `nn.router`.

    Accumulators are sums over samples, like loss and weight: they add up over
    microbatches and ranks, and samples that only pad the batch do not count. The loss
    does not depend on the accumulators. A module without experts is not changed.

    With `update-biases`, the bias of each router becomes a buffer. The pass
    recognises the bias by its use: it is a tensor with one number for each
    expert that is added to the scores by which experts are chosen, and no other
    operation reads it. The bias gets no gradient; `nn-update-router-biases`
    updates it by the counts. A router without such a bias is an error. In a
    pipeline the pass runs between `pipe-mark-stages` and `pipe-cut-stages`, so
    that the choices of a router are counted in the stage that contains the
    router.

    Before:
    ```mlir
    %p, %id = nn.top_k %scores k = 2 : tensor<3x4xf32> -> tensor<3x2xf32>, tensor<3x2xi64>
    %y = nn.grouped_dot %x, %w, %id : tensor<3x2x5xf32>, tensor<4x5x7xf32>, tensor<3x2xi64> -> tensor<3x2x7xf32>
    ```

    After (in `@loss_train`, whose last result is `%5`):
    ```mlir
    %0 = nn.iota dim = 0 : tensor<4xi64>
    %1 = nn.broadcast %id dims = [0, 1] : tensor<3x2xi64> -> tensor<3x2x4xi64>
    %2 = nn.broadcast %0 dims = [2] : tensor<4xi64> -> tensor<3x2x4xi64>
    %3 = arith.cmpi eq, %1, %2 : tensor<3x2x4xi64>
    %4 = arith.extui %3 : tensor<3x2x4xi1> to tensor<3x2x4xi64>
    %5 = nn.reduce sum %4 dims = [0, 1] : tensor<3x2x4xi64> -> tensor<4xi64>
    ```
  }];
  let options = [
    Option<"updateBiases", "update-biases", "bool", "false",
           "Make the bias by which each router chooses a buffer, and name it in nn.router">,
  ];
  let dependentDialects = ["::cleave::nn::NNDialect", "::mlir::arith::ArithDialect"];
}

def DifferentiatePass : Pass<"nn-differentiate", "::mlir::ModuleOp"> {
  let summary = "Derive @loss_grad from @loss by reverse-mode differentiation";
  let description = [{
    The gradient of the loss *sum* with respect to each argument of role `parameter` becomes a result.
    Each operation gives its derivative through DifferentiableInterface; an operation that a gradient
    reaches and that has no derivative is an error. Values of the forward pass that the backward pass
    reads go through `nn.save`; data movement (broadcast, transpose, ...) is recomputed instead. The
    pass starts from `@loss_train` if there is one. With `accumulate`, each result is added to an
    argument of its name and role, so that sums, weights and gradients add up over microbatches. `@loss`
    is kept for validation.

    In a pipeline stage (a module with `pipe.stage`) the backward pass begins at the loss, which only the
    last stage has, and at the cotangents of the activations that the stage sends. Each sent activation
    that is `pipe.differentiable` gets an argument of role `cotangent`, named like the activation with
    `.grad` appended. The results are the activations sent, loss and weight, the cotangents of the
    activations received, and the gradients. Activations and cotangents do not accumulate.

    With `apart`, each call of `@loss_grad` returns the gradient of the mean loss of its microbatch,
    because an update follows each microbatch: the cotangent of the loss sum is 1/weight (0 if the
    weight is 0), and gradients do not accumulate.

    Before:
    ```mlir
    func.func @loss(%w: tensor<3xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                    %x: tensor<3xf32> {nn.name = "x", nn.role = #nn.role<input>})
        -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
      %0 = nn.einsum "i,i->" %w, %x : tensor<3xf32>, tensor<3xf32> -> tensor<f32>
      %one = arith.constant dense<1.0> : tensor<f32>
      return %0, %one : tensor<f32>, tensor<f32>
    }
    ```

    After (beside `@loss`):
    ```mlir
    func.func @loss_grad(%w: tensor<3xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                         %x: tensor<3xf32> {nn.name = "x", nn.role = #nn.role<input>})
        -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>},
            tensor<3xf32> {nn.name = "w", nn.role = #nn.role<gradient>}) {
      %0 = nn.einsum "i,i->" %w, %x : tensor<3xf32>, tensor<3xf32> -> tensor<f32>
      %one = arith.constant dense<1.0> : tensor<f32>
      %1 = nn.einsum ",i->i" %one, %x : tensor<f32>, tensor<3xf32> -> tensor<3xf32>
      return %0, %one, %1 : tensor<f32>, tensor<f32>, tensor<3xf32>
    }
    ```
  }];
  let options = [
    Option<"accumulate", "accumulate", "bool", "false", "Add each result to an argument">,
    Option<"apart", "apart", "bool", "false", "Each call is followed by an update of its own">,
  ];
  let dependentDialects = ["::cleave::nn::NNDialect", "::mlir::arith::ArithDialect", "::mlir::math::MathDialect"];
}

def DropZeroSumsPass : Pass<"nn-drop-zero-sums", "::mlir::func::FuncOp"> {
  let summary = "Replace gradients that the structure of attention makes zero with exact zeros";
  let description = [{
    Adding a constant to all scores of a query does not change the softmax, so the cotangents of all
    keys of `nn.attention` add up to zero. If keys have a bias, and only data movement and scales are
    between the bias and attention (no rotary embedding, no norm), the gradient of this bias is the sum
    of the cotangents: exactly zero, but computed as rounding noise. AdamW divides a gradient by its
    magnitude, so the bias would drift differently on every mesh. The pass replaces such sums of
    cotangents over all positions by zeros; in a fused bias, the part that belongs to the keys gets
    zeros. With a softcap between scores and softmax the sum is not zero, so the pass does not change
    it.

    If attention is not one operation but several, the cotangents of a row of scores are
    y * (g - sum(g * y)) with the softmax y, as `nn-differentiate` builds them, and they add
    up to zero, too. The gradient of the keys is a product with these cotangents. Two
    kinds of operations may come between the cotangents and this product: scales that are
    the same for all keys, and the derivative of a mask that replaced scores by -inf (or
    by the lowest number).

    Before:
    ```mlir
    %dq, %dk, %dv = nn.attention_grad %do, %q, %k, %v, %o, %lse scale = 0.5
      : (tensor<2x5x3x1x4xf32>, tensor<2x5x3x1x4xf32>, tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32>, tensor<2x5x3x1x4xf32>, tensor<2x3x1x5xf32>)
      -> (tensor<2x5x3x1x4xf32>, tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32>)
    %0 = nn.reduce sum %dk dims = [0, 1] : tensor<2x5x3x4xf32> -> tensor<3x4xf32>
    ```

    After:
    ```mlir
    %dq, %dk, %dv = nn.attention_grad %do, %q, %k, %v, %o, %lse scale = 0.5
      : (tensor<2x5x3x1x4xf32>, tensor<2x5x3x1x4xf32>, tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32>, tensor<2x5x3x1x4xf32>, tensor<2x3x1x5xf32>)
      -> (tensor<2x5x3x1x4xf32>, tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32>)
    %0 = arith.constant dense<0.0> : tensor<3x4xf32>
    ```
  }];
  let dependentDialects = ["::cleave::nn::NNDialect", "::mlir::arith::ArithDialect"];
}

def AddOptimizerPass : Pass<"nn-add-optimizer", "::mlir::ModuleOp"> {
  let summary = "Derive @update and @init_state from the gradients of @loss_grad";
  let description = [{
    `@update(parameters, state, counts, gradients, loss, weight, lr)` returns the new parameters, state
    and counts and the metrics `loss` (the sum), `weight`, `grad_norm` and `finite`. The gradients are
    those of the loss sum, so each is scaled by 1/weight, and by min(1, clip/(norm + 1e-6)) if
    `clip-norm` is not 0. The squares of the gradients are added up for the norm in the order of the
    parameters. One `nn.adamw` or `nn.sgd` per parameter follows. Weight decay applies to parameters of
    two or more dimensions (in the file, not in a view) that no pattern of `no-decay` matches.
    `@init_state` returns zeros. If the loss or the gradient norm is not finite, `@update` returns the
    old parameters, state and counts, and the metric `finite` is 0.

    The moments of AdamW have a bias that depends on how often a parameter has
    been updated. `nn.adamw` corrects this bias, so the number of updates is
    state of role `count`. Parameters that began to train at the same step form
    a set and share one count, and the attribute `nn.count` of a moment names
    this count. Sets are numbered. Parameters that have trained from the
    beginning are in set 0. The option `began` has an entry `SET:NAME` for each
    parameter NAME that began to train later, where SET is the number of its
    set, 1 or more.

    In a pipeline stage (a module with `pipe.stage`), only the last stage has
    loss and weight as arguments. If several stages have the same parameter
    (`pipe.stages`), its gradient is summed over these stages, and only the
    first of these stages adds the squares of the gradient's elements to the
    norm. The sums of squares, the loss and the weight are summed over all
    stages, so that every stage has all metrics.

    With `apart`, an update follows each microbatch, with the gradient of the microbatch's mean loss
    (see `apart` of `nn-differentiate`). Nothing is summed over stages, so there are no norm, no
    clipping and no metrics. A stage does not know whether the gradients of other stages are finite, so
    no update is skipped. A parameter of several stages is an error.

    Before: a `@loss_grad` with a parameter `w` as above. After (beside it):
    ```mlir
    func.func @update(%w: tensor<3xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                      %v: tensor<3xf32> {nn.name = "w.velocity", nn.role = #nn.role<state>},
                      %g: tensor<3xf32> {nn.name = "w", nn.role = #nn.role<gradient>},
                      %loss: tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>},
                      %weight: tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>},
                      %lr: tensor<f32> {nn.name = "lr", nn.role = #nn.role<lr>})
        -> (tensor<3xf32> {nn.name = "w", nn.role = #nn.role<parameter>}, tensor<3xf32> {nn.name = "w.velocity", nn.role = #nn.role<state>}) {
      %one = arith.constant dense<1.0> : tensor<f32>
      %scale = arith.divf %one, %weight : tensor<f32>
      %w1, %v1 = nn.sgd %w, %v, %g, %scale, %lr momentum = 0.9 weight_decay = 0.0 : tensor<3xf32>, tensor<f32>
      %infinity = arith.constant dense<0x7F800000> : tensor<f32>
      %size = math.absf %loss : tensor<f32>
      %finite = arith.cmpf olt, %size, %infinity : tensor<f32>
      %all = nn.broadcast %finite dims = [] : tensor<i1> -> tensor<3xi1>
      %w2 = arith.select %all, %w1, %w : tensor<3xi1>, tensor<3xf32>
      %v2 = arith.select %all, %v1, %v : tensor<3xi1>, tensor<3xf32>
      return %w2, %v2 : tensor<3xf32>, tensor<3xf32>
    }
    ```
    (The example leaves out the metrics, and the part of `%finite` that checks the norm.)
  }];
  let options = [
    Option<"optimizer", "optimizer", "std::string", "\"adamw\"", "adamw or sgd">,
    Option<"beta1", "beta1", "double", "0.9", "Decay of the first moment">,
    Option<"beta2", "beta2", "double", "0.999", "Decay of the second moment">,
    Option<"epsilon", "eps", "double", "1e-8", "Added to the denominator">,
    Option<"momentum", "momentum", "double", "0.9", "Momentum of sgd">,
    Option<"weightDecay", "weight-decay", "double", "0.01", "Decoupled weight decay">,
    Option<"clipNorm", "clip-norm", "double", "1.0", "Bound of the global gradient norm; 0: none">,
    Option<"apart", "apart", "bool", "false", "An update follows each microbatch">,
    ListOption<"began", "began", "std::string", "SET:NAME of parameters that began to train later than the rest">,
    Option<"tapGradients", "tap-gradients", "bool", "false",
           "Return the gradients that the optimizer reads as results of role tap">,
    ListOption<"noDecay", "no-decay", "std::string", "Patterns of parameters without weight decay">,
  ];
  let dependentDialects = ["::cleave::nn::NNDialect", "::cleave::pipe::PipeDialect", "::mlir::arith::ArithDialect",
                           "::mlir::math::MathDialect"];
}

def MixedPrecisionPass : Pass<"nn-mixed-precision", "::mlir::ModuleOp"> {
  let summary = "Store and multiply in bf16, sum in f32";
  let description = [{
    Before the pass, all values are f32. After the pass, arguments that are trained parameters are bf16,
    so that a sharded parameter is gathered in bf16. `@update` has an f32 copy of each trained parameter
    as state `NAME.master` (master weights), sharded like the parameter's other state, and returns both
    the new copy and the rounded parameter. Values that depend on a rounded value are bf16 between
    operations; `LoweringInterface::getPrecision` says for each operation how it handles bf16 operands:

    - *products* (contractions, attention, experts) read bf16, accumulate in f32, and give
      bf16, or f32 if a reader of the result needs f32;
    - *data movement* (reshapes, gathers, `nn.save`) keeps the type of its operand;
    - *everything else* computes in f32: it widens operands and rounds results. Kernels
      widen and round in registers. A rounding marked `nn.storage` only serves storage: a
      kernel that widens the value again reads the unrounded one.

    These values stay f32: scalars; values that depend on no parameter (positions, masks, angles);
    statistics of norms, the log-sum-exp of attention, sums over dimensions, losses per position; and
    values on the way from a product to a gradient, a loss, an accumulator, a buffer or a choice
    (`nn.argmax`, `nn.top_k`), so that rounding does not change which expert is chosen. Outputs are
    widened to the type that they have in the model's graph. Activations and cotangents that cross
    pipeline stages are bf16.

    Parameters that are not trained stay f32 as arguments, and are rounded where they are
    first read. The pass runs after the strategies and treats their constraints
    (`dist.constrain`) as data movement. Values that are not f32 do not change. Loops and
    branches are refused.

    Before:
    ```mlir
    func.func @loss_grad(%w: tensor<3x7xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                         %x: tensor<2x3xf32> {nn.name = "x", nn.role = #nn.role<input>},
                         %dy: tensor<2x7xf32> {nn.name = "dy", nn.role = #nn.role<input>})
        -> (tensor<2x7xf32> {nn.name = "y", nn.role = #nn.role<output>}, tensor<3x7xf32> {nn.name = "w", nn.role = #nn.role<gradient>}) {
      %0 = nn.einsum "bh,hv->bv" %x, %w : tensor<2x3xf32>, tensor<3x7xf32> -> tensor<2x7xf32>
      %1 = math.tanh %0 : tensor<2x7xf32>
      %2 = arith.mulf %1, %dy : tensor<2x7xf32>
      %3 = nn.einsum "bh,bv->hv" %x, %2 : tensor<2x3xf32>, tensor<2x7xf32> -> tensor<3x7xf32>
      return %1, %3 : tensor<2x7xf32>, tensor<3x7xf32>
    }
    ```

    After:
    ```mlir
    func.func @loss_grad(%w: tensor<3x7xbf16> {nn.name = "w", nn.role = #nn.role<parameter>},
                         %x: tensor<2x3xf32> {nn.name = "x", nn.role = #nn.role<input>},
                         %dy: tensor<2x7xf32> {nn.name = "dy", nn.role = #nn.role<input>})
        -> (tensor<2x7xf32> {nn.name = "y", nn.role = #nn.role<output>}, tensor<3x7xf32> {nn.name = "w", nn.role = #nn.role<gradient>}) {
      %xb = arith.truncf %x {nn.storage} : tensor<2x3xf32> to tensor<2x3xbf16>
      %0 = nn.einsum "bh,hv->bv" %xb, %w : tensor<2x3xbf16>, tensor<3x7xbf16> -> tensor<2x7xbf16>
      %1 = arith.extf %0 : tensor<2x7xbf16> to tensor<2x7xf32>
      %2 = math.tanh %1 : tensor<2x7xf32>
      %3 = arith.truncf %2 {nn.storage} : tensor<2x7xf32> to tensor<2x7xbf16>
      %4 = arith.extf %3 : tensor<2x7xbf16> to tensor<2x7xf32>
      %5 = arith.mulf %4, %dy : tensor<2x7xf32>
      %6 = arith.truncf %5 {nn.storage} : tensor<2x7xf32> to tensor<2x7xbf16>
      %7 = nn.einsum "bh,bv->hv" %xb, %6 : tensor<2x3xbf16>, tensor<2x7xbf16> -> tensor<3x7xf32>
      %8 = arith.extf %3 : tensor<2x7xbf16> to tensor<2x7xf32>
      return %8, %7 : tensor<2x7xf32>, tensor<3x7xf32>
    }
    ```
  }];
  let dependentDialects = ["::cleave::nn::NNDialect", "::mlir::arith::ArithDialect"];
}

def UpdateRouterBiasesPass : Pass<"nn-update-router-biases", "::mlir::ModuleOp"> {
  let summary = "Move router biases towards equal loads in @update";
  let description = [{
    The pass balances the loads of experts without a loss (Wang et al., 2024,
    arXiv 2408.15664; DeepSeek-V3): after each step the bias of each expert
    becomes bias + rate * sign(mean load - load). The load is the number of
    tokens that chose the expert in all microbatches and on all ranks;
    `nn-count-choices` with `update-biases` runs before; it adds these counts to
    `@loss_grad` and makes the biases buffers. Loads are compared as integers,
    so that every mesh gives the same biases. If `@update` has a metric `finite`
    and its value is 0, the bias does not change.

    Before: a `@loss_grad` with the buffer `b` and a result with the counts, and its `@update`. After:
    ```mlir
    func.func @update(%b: tensor<4xf32> {nn.name = "b", nn.role = #nn.role<buffer>},
                      %counts: tensor<4xi64> {nn.name = "gate.chosen", nn.role = #nn.role<accumulator>})
        -> (tensor<4xf32> {nn.name = "b", nn.role = #nn.role<buffer>}) {
      %0 = nn.reduce sum %counts dims = [0] : tensor<4xi64> -> tensor<i64>
      %slots = nn.broadcast %0 dims = [] : tensor<i64> -> tensor<4xi64>
      %four = arith.constant dense<4> : tensor<4xi64>
      %scaled = arith.muli %counts, %four : tensor<4xi64>
      %above = arith.cmpi sgt, %scaled, %slots : tensor<4xi64>
      %minus = arith.constant dense<-0.001> : tensor<4xf32>
      %zero = arith.constant dense<0.0> : tensor<4xf32>
      %down = arith.select %above, %minus, %zero : tensor<4xi1>, tensor<4xf32>
      %below = arith.cmpi slt, %scaled, %slots : tensor<4xi64>
      %plus = arith.constant dense<0.001> : tensor<4xf32>
      %step = arith.select %below, %plus, %down : tensor<4xi1>, tensor<4xf32>
      %1 = arith.addf %b, %step : tensor<4xf32>
      return %1 : tensor<4xf32>
    }
    ```
  }];
  let options = [Option<"rate", "rate", "double", "0.0", "How far a step moves a bias; 0: do nothing">];
  let dependentDialects = ["::cleave::nn::NNDialect", "::mlir::arith::ArithDialect"];
}

#endif
