// Passes within the nn dialect.

#ifndef CLEAVE_DIALECT_NN_TRANSFORMS_PASSES_TD
#define CLEAVE_DIALECT_NN_TRANSFORMS_PASSES_TD

include "mlir/Pass/PassBase.td"

def FoldShapesPass : Pass<"nn-fold-shapes", "::mlir::func::FuncOp"> {
  let summary = "Remove reshapes, transposes and broadcasts that only serve an exporter";
  let description = [{
    Exporters flatten, unflatten, swap and repeat dimensions around every
    product. The pass finds the dimensions that remain when each is cut wherever
    some reshape cuts it, and rewrites all operations to these: reshapes that
    split and merge vanish, and so do dimensions of size 1. Transposes and
    broadcasts move down through elementwise operations and end in the letters
    of `nn.einsum`. A reshape whose cuts contradict others stays. Shapes of
    arguments and results stay: `nn-simplify` turns reshapes of parameters
    into views.

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
    Matches meaning, not spelling: which dimensions are contracted, repeated or
    reduced, whatever their order, and constants by value. Attention absorbs
    scales on query, key or scores, soft-capping, repeated key heads, guards
    against rows without keys, and masks: the causal one, windows, those of
    packed documents and one over keys become attributes and operands, the
    rest a bias. Expects the form that
    `nn-fold-shapes` leaves. What does not match stays as it is.

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
  let summary = "Bring layers of experts, however a file spells them, to products of slots";
  let description = [{
    A file spells a layer of experts as one subgraph for each expert, whose
    result counts where a comparison of the chosen ids says so; as products with
    matrices [experts, ., .] of all tokens; or as products with the matrices that
    each slot gathers. All compute, for each token, the sum over its slots of
    weight times expert: that is what is left, as `nn.grouped_dot` on rows [tokens...,
    slots, .] and one `nn.einsum` over the slots. Experts are told from their
    comparisons and must otherwise be alike, with ids from `nn.top_k` or
    `nn.argmax`; what does not match stays as it is. Tensors of the file that
    belong to one expert each are stacked: `nn.parts` of the argument says which
    tensors of the file it is made of, in order.

    A layer that adds up fewer experts than its router chooses from is an error:
    an export by tracing has kept only those that its sample chose. So is a router
    (the largest scores of a product with a parameter) whose scores weigh other
    data at places that the file fixes, while nothing reads which experts they
    belong to.

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
    Absorbs transposes and broadcasts into `nn.einsum`, moves broadcasts below
    elementwise operations, composes movement, folds constants, and merges equal
    operations. With `parameter-views`, used once after import, dimensions are
    factored as in `nn-fold-shapes` and a parameter that is only ever read through a
    reshape takes its result's shape; `nn.view` keeps the shape in the file. Then a
    fused weight [h, 3h] is [h, 3, heads, d], and can be split by heads. So is a
    dimension that is read in equal slices only: [h, 2f] of a gated MLP is
    [h, 2, f].

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
  let summary = "Drop the slots that an expert has no room for";
  let description = [{
    With `capacity` c, k slots a token and e experts, an expert takes at most
    ceil(c s k / e) slots of a sequence of s positions (Lepikhin et al., 2020), in the
    order of positions, then of slots. With `scope` = microbatch, it takes ceil(c b s k / e)
    of all b sequences, in the order of samples, positions, slots (Fedus et al., 2021).
    What is beyond chooses no expert: its id becomes -1 for `nn.grouped_dot` and for what
    reads biases of experts; weights, and losses of routers, stay as the router gave
    them. A sequence is a sample, whichever rank it is on, so that what is dropped
    depends on no mesh.

    Choices are [samples, positions, slots], or [samples, positions] of one expert for
    each token. Those of one token for each sample, and those of samples joined with
    positions, have a microbatch alone.

    Errors: a program without `nn.grouped_dot`; a capacity of sequences for choices that
    have none.

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
    Not every input or output has the samples of a microbatch along dimension 0: a
    mask is [sequence, sequence], an output may be [sequence, batch, classes], or a sum over
    all. Inputs that carry `nn.batch_dim` (from the model's symbolic dimensions)
    start; where none does, dimension 0 of the tokens, else of the first input.
    The factors of the operations carry the batch on, forwards and backwards, also
    as the major part of a product ([batch * sequence]). A dimension found so
    is noted as `nn.batch_dim`. An output that depends on several samples at once, or has no one
    dimension for them, is marked `nn.whole_call`: it is right only for
    exactly the samples of one call.

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

def VerifyConstantsPass : Pass<"nn-verify-constants", "::mlir::func::FuncOp"> {
  let summary = "Refuse constants above a size in the IR";
  let description = [{
    Weights are arguments and index grids are `nn.iota`, so that the IR of a
    large model stays small. A constant above `max-bytes` that is not one
    repeated element is an error at its location. The IR does not change.

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
