// Passes within the nn dialect.

#ifndef CLEAVE_DIALECT_NN_TRANSFORMS_PASSES_TD
#define CLEAVE_DIALECT_NN_TRANSFORMS_PASSES_TD

include "mlir/Pass/PassBase.td"

def FoldShapesPass : Pass<"nn-fold-shapes", "::mlir::func::FuncOp"> {
  let summary = "Remove reshapes, transposes and broadcasts that only serve an exporter";
  let description = [{
    Exporters flatten, unflatten, swap and repeat dimensions around every
    product. The pass splits each dimension wherever a reshape splits it, and
    rewrites all operations to the split dimensions. So reshapes that split or
    merge dimensions vanish, as do dimensions of size 1. Transposes and
    broadcasts move down through elementwise operations until they reach an
    `nn.einsum`, whose subscripts then express them. A reshape stays if its
    splits contradict those of other reshapes. Shapes of arguments and results
    do not change; `nn-simplify` turns reshapes of parameters into views.

    Before:
    ```mlir
    func.func @f(%x: tensor<2x5x6xf32>, %w: tensor<6x12xf32>) -> tensor<2x5x3x4xf32> {
      %0 = nn.reshape %x : tensor<2x5x6xf32> -> tensor<10x6xf32>
      %1 = nn.einsum "ab,bc->ac" %0, %w : tensor<10x6xf32>, tensor<6x12xf32> -> tensor<10x12xf32>
      %2 = nn.reshape %1 : tensor<10x12xf32> -> tensor<2x5x3x4xf32>
      return %2 : tensor<2x5x3x4xf32>
    }
    ```

    After:
    ```mlir
    func.func @f(%x: tensor<2x5x6xf32>, %w: tensor<6x12xf32>) -> tensor<2x5x3x4xf32> {
      %0 = nn.reshape %w : tensor<6x12xf32> -> tensor<6x3x4xf32>
      %1 = nn.einsum "abc,cde->abde" %x, %0 : tensor<2x5x6xf32>, tensor<6x3x4xf32> -> tensor<2x5x3x4xf32>
      return %1 : tensor<2x5x3x4xf32>
    }
    ```
  }];
  let dependentDialects = ["::cleave::nn::NNDialect", "::mlir::arith::ArithDialect"];
}

def RaiseCompositesPass : Pass<"nn-raise-composites", "::mlir::func::FuncOp"> {
  let summary = "Recognise attention, norms, rotary positions and GELU in their spelled-out forms";
  let description = [{
    The pass recognises these operations by the dimensions that are contracted, repeated or reduced,
    in any order of dimensions, and by the values of constants. Attention absorbs scales on query,
    key or scores, soft-capping, repeated key heads, guards against rows without keys, and masks.
    Causal masks, windows, masks of packed documents and a mask over keys become attributes and
    operands; other masks become a bias. The pass must run after `nn-fold-shapes`. Operations that
    do not match do not change.

    Before:
    ```mlir
    func.func @f(%x: tensor<2x5x6xf32>, %w: tensor<6xf32>) -> tensor<2x5x6xf32> {
      %n = arith.constant dense<6.0> : tensor<2x5xf32>
      %eps = arith.constant dense<1.0e-6> : tensor<2x5xf32>
      %0 = arith.mulf %x, %x : tensor<2x5x6xf32>
      %1 = nn.reduce sum %0 dims = [2] : tensor<2x5x6xf32> -> tensor<2x5xf32>
      %2 = arith.divf %1, %n : tensor<2x5xf32>
      %3 = arith.addf %2, %eps : tensor<2x5xf32>
      %4 = math.rsqrt %3 : tensor<2x5xf32>
      %5 = nn.broadcast %4 dims = [0, 1] : tensor<2x5xf32> -> tensor<2x5x6xf32>
      %6 = arith.mulf %x, %5 : tensor<2x5x6xf32>
      %7 = nn.broadcast %w dims = [2] : tensor<6xf32> -> tensor<2x5x6xf32>
      %8 = arith.mulf %6, %7 : tensor<2x5x6xf32>
      return %8 : tensor<2x5x6xf32>
    }
    ```

    After:
    ```mlir
    func.func @f(%x: tensor<2x5x6xf32>, %w: tensor<6xf32>) -> tensor<2x5x6xf32> {
      %0, %rstd = nn.rms_norm %x, %w epsilon = 1.0e-6
        : (tensor<2x5x6xf32>, tensor<6xf32>) -> (tensor<2x5x6xf32>, tensor<2x5xf32>)
      return %0 : tensor<2x5x6xf32>
    }
    ```
  }];
  let dependentDialects = ["::cleave::nn::NNDialect", "::mlir::arith::ArithDialect"];
}

def RollExpertsPass : Pass<"nn-roll-experts", "::mlir::func::FuncOp"> {
  let summary = "Rewrite the layers of experts of a model file to grouped products";
  let description = [{
    A model file has a layer of experts in one of three forms: one subgraph for
    each expert, with a result that is masked by a comparison of the chosen ids;
    products of all tokens with matrices [experts, ., .]; or products with
    matrices that are gathered for each token and chosen expert. All forms
    compute the same result for each token: the sum, over the experts that the
    token chose, of the router's weight times the output of the expert. The pass
    rewrites them to `nn.grouped_dot` on rows [tokens..., k, .], with one row
    for each token and each of its k experts, and one `nn.einsum` that computes
    the sum over the k experts. The subgraphs of the experts must be equal
    except for the id with which they compare, and the ids of the chosen experts
    must come from `nn.top_k` or `nn.argmax`; layers that do not match do not
    change. If each expert has its own tensors in the file, these are stacked
    into one argument; `nn.parts` of the argument lists the tensors in order.

    It is an error if a layer sums fewer experts than its router chooses from:
    such a model was exported by tracing, which kept only the experts that the
    sample input chose. Tracing can also replace the ids of the chosen experts
    by constants. So it is an error if the program computes the largest scores
    of a router but no operation reads whose scores these are, and if, instead,
    scores at indices that are constants of the file are multiplied with other
    data. Scores count as those of a router only if they depend on a product
    with a parameter.

    Before:
    ```mlir
    func.func @f(%x: tensor<3x5xf32>, %scores: tensor<3x2xf32>,
                 %w: tensor<5x7xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                 %v: tensor<5x7xf32> {nn.name = "v", nn.role = #nn.role<parameter>}) -> tensor<3x7xf32> {
      %zero = arith.constant dense<0> : tensor<3x1xi64>
      %one = arith.constant dense<1> : tensor<3x1xi64>
      %p, %ids = nn.top_k %scores k = 1 : tensor<3x2xf32> -> tensor<3x1xf32>, tensor<3x1xi64>
      %0 = arith.cmpi eq, %ids, %zero : tensor<3x1xi64>
      %1 = arith.uitofp %0 : tensor<3x1xi1> to tensor<3x1xf32>
      %2 = arith.mulf %p, %1 : tensor<3x1xf32>
      %3 = nn.reduce sum %2 dims = [1] : tensor<3x1xf32> -> tensor<3xf32>
      %4 = nn.broadcast %3 dims = [0] : tensor<3xf32> -> tensor<3x7xf32>
      %5 = nn.einsum "ab,bc->ac" %x, %w : tensor<3x5xf32>, tensor<5x7xf32> -> tensor<3x7xf32>
      %6 = arith.mulf %5, %4 : tensor<3x7xf32>
      %7 = arith.cmpi eq, %ids, %one : tensor<3x1xi64>
      %8 = arith.uitofp %7 : tensor<3x1xi1> to tensor<3x1xf32>
      %9 = arith.mulf %p, %8 : tensor<3x1xf32>
      %10 = nn.reduce sum %9 dims = [1] : tensor<3x1xf32> -> tensor<3xf32>
      %11 = nn.broadcast %10 dims = [0] : tensor<3xf32> -> tensor<3x7xf32>
      %12 = nn.einsum "ab,bc->ac" %x, %v : tensor<3x5xf32>, tensor<5x7xf32> -> tensor<3x7xf32>
      %13 = arith.mulf %12, %11 : tensor<3x7xf32>
      %14 = arith.addf %6, %13 : tensor<3x7xf32>
      return %14 : tensor<3x7xf32>
    }
    ```

    After:
    ```mlir
    func.func @f(%x: tensor<3x5xf32>, %scores: tensor<3x2xf32>,
                 %w: tensor<2x5x7xf32> {nn.name = "w", nn.role = #nn.role<parameter>, nn.parts = [#nn.part<name = "w">, #nn.part<name = "v">]})
        -> tensor<3x7xf32> {
      %p, %ids = nn.top_k %scores k = 1 : tensor<3x2xf32> -> tensor<3x1xf32>, tensor<3x1xi64>
      %0 = nn.broadcast %x dims = [0, 2] : tensor<3x5xf32> -> tensor<3x1x5xf32>
      %1 = nn.grouped_dot %0, %w, %ids : tensor<3x1x5xf32>, tensor<2x5x7xf32>, tensor<3x1xi64> -> tensor<3x1x7xf32>
      %2 = nn.einsum "abc,ab->ac" %1, %p : tensor<3x1x7xf32>, tensor<3x1xf32> -> tensor<3x7xf32>
      return %2 : tensor<3x7xf32>
    }
    ```
  }];
  let dependentDialects = ["::cleave::nn::NNDialect", "::mlir::arith::ArithDialect"];
}

def SimplifyPass : Pass<"nn-simplify", "::mlir::func::FuncOp"> {
  let summary = "Bring nn IR to the form that the partitioner relies on";
  let description = [{
    The pass absorbs transposes and broadcasts into `nn.einsum`, moves broadcasts below elementwise
    operations, composes shape operations, folds constants, and merges equal operations. With
    `parameter-views`, which is used once after import, dimensions are split as in `nn-fold-shapes`,
    and a parameter that is read only through a reshape gets the shape of the reshape's result; its
    attribute `nn.view` records its shape in the file. A fused weight [h, 3h] then becomes [h, 3,
    heads, d] and can be sharded by heads. A dimension that is read only in equal slices is split as
    well: the weight [h, 2f] of a gated MLP becomes [h, 2, f].

    Before (`parameter-views`):
    ```mlir
    func.func @f(%x: tensor<2x5x6xf32> {nn.name = "x", nn.role = #nn.role<input>},
                 %w: tensor<6x12xf32> {nn.name = "w", nn.role = #nn.role<parameter>}) -> tensor<2x3x5x4xf32> {
      %0 = nn.reshape %w : tensor<6x12xf32> -> tensor<6x3x4xf32>
      %1 = nn.einsum "abc,cde->abde" %x, %0 : tensor<2x5x6xf32>, tensor<6x3x4xf32> -> tensor<2x5x3x4xf32>
      %2 = nn.transpose %1 [0, 2, 1, 3] : tensor<2x5x3x4xf32> -> tensor<2x3x5x4xf32>
      return %2 : tensor<2x3x5x4xf32>
    }
    ```

    After:
    ```mlir
    func.func @f(%x: tensor<2x5x6xf32> {nn.name = "x", nn.role = #nn.role<input>},
                 %w: tensor<6x3x4xf32> {nn.name = "w", nn.role = #nn.role<parameter>,
                   nn.view = #nn.view<shape = [6, 12], view = [6, 3, 4]>}) -> tensor<2x3x5x4xf32> {
      %0 = nn.einsum "abc,cde->adbe" %x, %w : tensor<2x5x6xf32>, tensor<6x3x4xf32> -> tensor<2x3x5x4xf32>
      return %0 : tensor<2x3x5x4xf32>
    }
    ```
  }];
  let options = [
    Option<"parameterViews", "parameter-views", "bool", "false",
           "Turn reshapes of parameters into views; only while there is one function">,
  ];
  let dependentDialects = ["::cleave::nn::NNDialect", "::mlir::arith::ArithDialect"];
}

def LimitChoicesPass : Pass<"nn-limit-choices", "::mlir::func::FuncOp"> {
  let summary = "Drop tokens that exceed the capacity of an expert";
  let description = [{
    A slot is a pair of a token and one of the k experts that it chose. With
    `capacity` c and e experts, an expert takes at most ceil(c s k / e) slots of
    a sequence of s positions (Lepikhin et al., 2020), in the order of
    positions, then of the k choices of a token. With `scope` = microbatch, an
    expert takes ceil(c b s k / e) slots of all b sequences, in the order of
    samples, positions, slots (Fedus et al., 2021). The remaining slots are
    dropped and choose no expert: their id becomes -1 for `nn.grouped_dot` and
    for operations that read biases of experts. The weights of the slots and the
    losses of routers do not change. A sequence is one sample of the whole
    batch, whatever ranks hold it, so that the dropped slots do not depend on
    the mesh.

    The ids of the chosen experts are [samples, positions, slots], or
    [samples, positions] for one expert per token. If samples have one token each, or the
    samples are merged with the positions, only `scope` = microbatch is possible.

    The pass reports an error for a program without `nn.grouped_dot`, and for a capacity
    per sequence if the ids have no dimension of positions.

    Before:
    ```mlir
    %0 = nn.grouped_dot %x, %w, %ids : tensor<2x3x1x6xf32>, tensor<2x6x8xf32>, tensor<2x3x1xi64> -> tensor<2x3x1x8xf32>
    ```

    After, with capacity = 1, in short:
    ```
    %positions = nn.iota dim = 0 : tensor<3xi64>
    %place = nn.position_in_expert %ids, %positions experts = 2 : (tensor<2x3x1xi64>, tensor<3xi64>) -> tensor<2x3x1xi64>
    %fits = arith.cmpi slt, %place, %two : tensor<2x3x1xi64>
    %limited = arith.select %fits, %ids, %none : tensor<2x3x1xi1>, tensor<2x3x1xi64>
    %0 = nn.grouped_dot %x, %w, %limited
    ```
  }];
  let options = [Option<"capacity", "capacity", "double", "0.0", "Capacity factor; 0: do nothing">,
                 Option<"scope", "scope", "std::string", "\"sequence\"",
                        "sequence or microbatch: whose slots an expert has room for">];
  let dependentDialects = ["::cleave::nn::NNDialect", "::mlir::arith::ArithDialect"];
}

def MarkBatchPass : Pass<"nn-mark-batch", "::mlir::func::FuncOp"> {
  let summary = "Find the dimension of each input and output that counts samples";
  let description = [{
    Not every input or output has the samples of a microbatch along dimension 0: a mask is
    [sequence, sequence], and an output may be [sequence, batch, classes], or a sum over all
    samples. The analysis starts at inputs with `nn.batch_dim` (from the model's symbolic
    dimensions); if no input has it, it starts at dimension 0 of the tokens, or else of the first
    input. The batch is propagated through the factors of the operations, forwards and backwards,
    also through merged dimensions of which the batch is the outer part ([batch * sequence]). The
    dimensions that are found are set as `nn.batch_dim`. An output that depends on several samples
    at once, or has no single dimension for samples, is marked `nn.whole_call`: its value is correct
    only for exactly the samples of one call.

    Before:
    ```mlir
    func.func @forward(%x: tensor<4x3xf32> {nn.name = "x", nn.role = #nn.role<input>})
        -> (tensor<3x4xf32> {nn.name = "t", nn.role = #nn.role<output>}, tensor<3xf32> {nn.name = "sums", nn.role = #nn.role<output>}) {
      %0 = nn.transpose %x [1, 0] : tensor<4x3xf32> -> tensor<3x4xf32>
      %1 = nn.reduce sum %x dims = [0] : tensor<4x3xf32> -> tensor<3xf32>
      return %0, %1 : tensor<3x4xf32>, tensor<3xf32>
    }
    ```

    After:
    ```mlir
    func.func @forward(%x: tensor<4x3xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>})
        -> (tensor<3x4xf32> {nn.batch_dim = 1 : i64, nn.name = "t", nn.role = #nn.role<output>},
            tensor<3xf32> {nn.name = "sums", nn.role = #nn.role<output>, nn.whole_call}) {
      %0 = nn.transpose %x [1, 0] : tensor<4x3xf32> -> tensor<3x4xf32>
      %1 = nn.reduce sum %x dims = [0] : tensor<4x3xf32> -> tensor<3xf32>
      return %0, %1 : tensor<3x4xf32>, tensor<3xf32>
    }
    ```
  }];
}

def VerifyTypesPass : Pass<"nn-verify-types"> {
  let summary = "Report types that the passes do not support as errors";
  let description = [{
    The parser of MLIR accepts types that no pass of cleave can process: tensors of unknown rank or size,
    tensors of `index` or complex numbers, and tensors of more than 2^48 elements, whose bytes or
    floating-point operations do not fit into 64 bits. So `cleave-opt` runs this pass before all others.
    The pass reports the first such tensor, and the first argument or result of a function that is not a
    tensor, unless it is an integer without a role, which a loop or a branch may read. In kernels, the pass
    also reports tensors without elements. The pass does not change the IR.

    Before and After:
    ```mlir
    func.func @f(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %0 = math.exp %x : tensor<2x3xf32>
      return %0 : tensor<2x3xf32>
    }
    ```
  }];
}

def VerifyConstantsPass : Pass<"nn-verify-constants", "::mlir::func::FuncOp"> {
  let summary = "Report constants above a size in the IR as errors";
  let description = [{
    Weights should be arguments and index grids should be `nn.iota`, so that the IR of a large model
    stays small. So the pass reports an error at the location of each constant of more than
    `max-bytes` bytes that is not a splat. The pass does not change the IR.

    Before and After:
    ```mlir
    func.func @f() -> tensor<2xf32> {
      %0 = arith.constant dense<[1.0, 2.0]> : tensor<2xf32>
      return %0 : tensor<2xf32>
    }
    ```
  }];
  let options = [
    Option<"maxBytes", "max-bytes", "int64_t", "4096", "The largest constant in bytes">,
  ];
}

#endif
