// Passes that cut a model into the stages of a pipeline.

#ifndef CLEAVE_STAGE_PASSES_TD
#define CLEAVE_STAGE_PASSES_TD

include "mlir/Pass/PassBase.td"

def MarkStagesPass : Pass<"pipe-mark-stages", "::mlir::ModuleOp"> {
  let summary = "Say of each operation which stage of the pipeline computes it";
  let description = [{
    What parameters and inputs make together belongs to a stage: `pipe.stage` says
    to which. What inputs alone make (masks, position ids, rotary
    tables), what parameters alone make (views of weights), and constants
    belong to none, and are computed in every stage that reads them. What nothing
    reads is removed.

    The training function (`@loss_train`, else `@loss`; `@forward` in a module that only infers) is put in a line, in the
    order of the program or as late as possible, whichever serves better. Every
    place between two operations at which time passes on both sides is a cut point. The stages are the
    consecutive pieces that

    1. take the least time in the slowest stage: the time of the forward pass,
       by the cost interface and the rates of the `cluster`, twice that for the
       gradients of operands that need one, and the traffic of the gradients of
       parameters, give or take 20 %;
    2. among these, send the fewest bytes;
    3. among these, take the least time in the slowest stage;
    4. among these, spread the bytes of the parameters evenly.

    With `patterns`, one regular expression for each stage, an operation belongs to the
    stage whose pattern matches its name or the name of a parameter that it reads: the whole name, or
    a leading part that ends at a `.` or `/` (`h\.[0-3]` matches `h.2.mlp.weight`, and not
    `h.20`). Operations that no pattern matches lie where the
    fewest bytes are sent; the order of the line may also be that of the patterns. A parameter that several stages read belongs to all of
    them.

    In the other functions an operation belongs to the stage of its operands, or to the next that has
    the parameters that it reads.

    Before:
    ```mlir
    func.func @loss(%w0: tensor<4x4xf32> {nn.name = "w0", nn.role = #nn.role<parameter>},
                    %w1: tensor<4x4xf32> {nn.name = "w1", nn.role = #nn.role<parameter>},
                    %x: tensor<2x4xf32> {nn.name = "x", nn.role = #nn.role<input>})
        -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
      %0 = nn.einsum "bi,io->bo" %x, %w0 : tensor<2x4xf32>, tensor<4x4xf32> -> tensor<2x4xf32>
      %1 = nn.einsum "bi,io->bo" %0, %w1 : tensor<2x4xf32>, tensor<4x4xf32> -> tensor<2x4xf32>
      %2 = nn.reduce sum %1 dims = [0, 1] : tensor<2x4xf32> -> tensor<f32>
      %one = arith.constant dense<1.0> : tensor<f32>
      return %2, %one : tensor<f32>, tensor<f32>
    }
    ```

    After, with `stages=2`:
    ```mlir
    module attributes {pipe.stages = 2 : i64} {
      func.func @loss(%w0: tensor<4x4xf32> {nn.name = "w0", nn.role = #nn.role<parameter>},
                      %w1: tensor<4x4xf32> {nn.name = "w1", nn.role = #nn.role<parameter>},
                      %x: tensor<2x4xf32> {nn.name = "x", nn.role = #nn.role<input>})
          -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
        %0 = nn.einsum "bi,io->bo" %x, %w0 {pipe.stage = 0 : i64} : tensor<2x4xf32>, tensor<4x4xf32> -> tensor<2x4xf32>
        %1 = nn.einsum "bi,io->bo" %0, %w1 {pipe.stage = 1 : i64} : tensor<2x4xf32>, tensor<4x4xf32> -> tensor<2x4xf32>
        %2 = nn.reduce sum %1 dims = [0, 1] {pipe.stage = 1 : i64} : tensor<2x4xf32> -> tensor<f32>
        %one = arith.constant dense<1.0> : tensor<f32>
        return %2, %one : tensor<f32>, tensor<f32>
      }
    }
    ```
  }];
  let options = [
    Option<"stages", "stages", "int64_t", "1", "How many stages">,
    ListOption<"patterns", "patterns", "std::string",
               "A pattern of names for each stage; none: by time and bytes">,
    Option<"cluster", "cluster", "std::string", "\"\"",
           "A cluster.toml with the rates of the machine; none: defaults">,
  ];
  let dependentDialects = ["::cleave::pipe::PipeDialect"];
}

def CutStagesPass : Pass<"pipe-cut-stages", "::mlir::ModuleOp"> {
  let summary = "One module for each stage, with its part of every function";
  let description = [{
    Takes the stages that `pipe-mark-stages` gave. Each function becomes one function of the
    same name in each stage, with the arguments that the stage reads. A value
    that a later stage reads is a result of each stage from its own on and an
    argument of each after it, named `cut.S.K`: the K-th value that crosses
    from stage S to the next, in the order of the program; in functions other than the
    training function `FUNCTION.cut.S.K`. Its role is `activation`. `nn.batch_dim` and
    `nn.whole_call` are said of it as of inputs and outputs, `nn.position_dim` where a
    dimension counts the positions of the sequence, and
    `pipe.differentiable` where it lies on a way from a trained parameter to the
    loss.

    Results of `@loss` and `@loss_train` are results of the last stage, those of other functions
    of the stage that computes them. A stage that would have no result of a function does not have it; the training
    function, with all parameters of the stage, is in every one. A trained parameter of several stages says so in
    `pipe.stages`.

    Before:
    ```mlir
    module attributes {pipe.stages = 2 : i64} {
      func.func @loss(%w: tensor<4x4xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
                      %x: tensor<2x4xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>})
          -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
        %0 = nn.einsum "bi,io->bo" %x, %w {pipe.stage = 0 : i64} : tensor<2x4xf32>, tensor<4x4xf32> -> tensor<2x4xf32>
        %1 = nn.einsum "bi,io->bo" %0, %w {pipe.stage = 1 : i64} : tensor<2x4xf32>, tensor<4x4xf32> -> tensor<2x4xf32>
        %2 = nn.reduce sum %1 dims = [0, 1] {pipe.stage = 1 : i64} : tensor<2x4xf32> -> tensor<f32>
        %one = arith.constant dense<1.0> : tensor<f32>
        return %2, %one : tensor<f32>, tensor<f32>
      }
    }
    ```

    After:
    ```mlir
    module attributes {pipe.stages = 2 : i64} {
      module @stage0 attributes {pipe.stage = 0 : i64, pipe.stages = 2 : i64} {
        func.func @loss(%w: tensor<4x4xf32> {nn.name = "w", nn.role = #nn.role<parameter>, pipe.stages = array<i64: 0, 1>},
                        %x: tensor<2x4xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>})
            -> (tensor<2x4xf32> {nn.batch_dim = 0 : i64, nn.name = "cut.0.0", nn.role = #nn.role<activation>, pipe.differentiable}) {
          %0 = nn.einsum "bi,io->bo" %x, %w : tensor<2x4xf32>, tensor<4x4xf32> -> tensor<2x4xf32>
          return %0 : tensor<2x4xf32>
        }
      }
      module @stage1 attributes {pipe.stage = 1 : i64, pipe.stages = 2 : i64} {
        func.func @loss(%w: tensor<4x4xf32> {nn.name = "w", nn.role = #nn.role<parameter>, pipe.stages = array<i64: 0, 1>},
                        %0: tensor<2x4xf32> {nn.batch_dim = 0 : i64, nn.name = "cut.0.0", nn.role = #nn.role<activation>, pipe.differentiable})
            -> (tensor<f32> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f32> {nn.name = "weight", nn.role = #nn.role<weight>}) {
          %1 = nn.einsum "bi,io->bo" %0, %w : tensor<2x4xf32>, tensor<4x4xf32> -> tensor<2x4xf32>
          %2 = nn.reduce sum %1 dims = [0, 1] : tensor<2x4xf32> -> tensor<f32>
          %one = arith.constant dense<1.0> : tensor<f32>
          return %2, %one : tensor<f32>, tensor<f32>
        }
      }
    }
    ```
  }];
  let dependentDialects = ["::cleave::pipe::PipeDialect"];
}

#endif
