// Passes that cut a model into the stages of a pipeline.

#ifndef CLEAVE_STAGE_PASSES_TD
#define CLEAVE_STAGE_PASSES_TD

include "mlir/Pass/PassBase.td"

def MarkStagesPass : Pass<"pipe-mark-stages", "::mlir::ModuleOp"> {
  let summary = "Assign operations to the stages of a pipeline";
  let description = [{
    An operation that depends both on parameters and on inputs is assigned to a stage, whose number is
    its attribute `pipe.stage`. Operations that depend on inputs alone (masks, position ids, rotary
    tables) or on parameters alone (views of weights), and constants, are assigned to no stage; every
    stage that reads their results computes them itself. Operations without readers are removed.

    The stages are determined in the training function: `@loss_train`, or
    `@loss` if there is no `@loss_train`, or `@forward` in a module for
    inference. Its operations are put in a linear order, and each stage is a
    range of consecutive operations in this order. The pass tries two orders,
    the program order and the order in which each operation comes as late as
    possible, and uses the one that gives better stages. Stages are separated at
    cut points, which are the positions in the order that have compute time both
    before and after them. The cut points are chosen by these criteria, the most
    important one first:

    1. The slowest stage must take at most 20 % longer than under the best
       possible balance. The time of an operation is the time of its forward
       pass (from CostInterface and the device's speed in the file `cluster`),
       plus twice this time if the gradients of all its operands are needed, or
       once if the gradient of only one of several operands is needed. To the
       time of a stage, the memory traffic of its parameter gradients is added.
    2. The stages should send each other as few bytes as possible.
    3. The slowest stage should take as little time as possible.
    4. The bytes of the parameters should be spread evenly over the stages.

    The option `patterns` gives one regular expression for each stage. An
    operation is then assigned to the stage whose pattern matches its name or
    the name of a parameter that it reads. A pattern matches a whole name, or a
    leading part that ends at a `.` or `/` (`h\.[0-3]` matches `h.2.mlp.weight`,
    and not `h.20`). Operations that no pattern matches are assigned such that
    stages send each other the fewest bytes. With `patterns`, the pass tries a
    third linear order in addition to the two orders above. It sorts the
    operations by the first stage that the patterns allow and that does not
    precede the stages of the operation's operands. A parameter that several
    stages read belongs to all these stages.

    In functions other than the training function, an operation is assigned to the latest stage of its
    operands or, if this stage does not have the parameters that the operation reads, to the next stage
    that has them.

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
    Option<"stages", "stages", "int64_t", "1", "Number of stages">,
    ListOption<"patterns", "patterns", "std::string",
               "A pattern of names for each stage; none: stages are balanced by time and bytes">,
    Option<"cluster", "cluster", "std::string", "\"\"",
           "A cluster.toml with the rates of the machine; none: defaults">,
  ];
  let dependentDialects = ["::cleave::pipe::PipeDialect"];
}

def CutStagesPass : Pass<"pipe-cut-stages", "::mlir::ModuleOp"> {
  let summary = "Cut a model into one module for each pipeline stage";
  let description = [{
    Cuts a model into the stages that `pipe-mark-stages` has assigned. Each function becomes one
    function of the same name in each stage, with the arguments that the stage reads. A value that a
    later stage reads is passed from stage to stage, up to the last stage that reads it: it is a result
    of the stage that computes it, an argument of the last stage that reads it, and both an argument and
    a result of the stages between these. The K-th value, in program order, that is passed from stage S
    to the next stage is named `cut.S.K` or, in functions other than the training function,
    `FUNCTION.cut.S.K`. Its role is `activation`. It has the attributes `nn.batch_dim` and
    `nn.whole_call` like inputs and outputs, `nn.position_dim` if a dimension counts the positions of
    the sequence, and `pipe.differentiable` if the loss depends on a trained parameter through it.

    Results of `@loss` and `@loss_train` become results of the last stage, except for accumulators.
    These, and the results of other functions, become results of the stage that computes them. A stage
    that would have no result of a function does not have the function. However, every stage has the
    training function, with all parameters of the stage as arguments. If several stages have a trained
    parameter, its attribute `pipe.stages` lists them.

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
