// The pipe dialect: the stages of a pipeline and the sums over stages.

#ifndef CLEAVE_DIALECT_PIPE_IR_PIPEOPS_TD
#define CLEAVE_DIALECT_PIPE_IR_PIPEOPS_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/OpBase.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Pipe_Dialect : Dialect {
  let name = "pipe";
  let cppNamespace = "::cleave::pipe";
  let summary = "The stages of a pipeline";
  let description = [{
    A model that is cut into stages is a module that contains one module for each stage.
    This dialect says where a program is cut, and describes what several stages do
    together: the schedule, and sums over stages. The dialect knows nothing of the
    computation inside a stage.

    Discardable attributes:

    | attribute | on | meaning |
    |---|---|---|
    | `pipe.stage` | operations, before the cut | the stage that computes the operation, an `i64` |
    | `pipe.stage`, `pipe.stages` | a module | the index of the stage, and the number of stages |
    | `pipe.stage` | functions, after the modules of all stages are merged into one | the stage that runs the function |
    | `pipe.scalar` | a module | the type of the loss, which only the last stage has |
    | `pipe.schedule` | a module of all stages | the pipeline schedule, `#pipe.schedule<...>` |
    | `pipe.action` | collectives of a stage's `@loss_grad` | the action of the schedule that the collective belongs to: "F" (forward), "I" (gradients of inputs), "W" (gradients of weights) or "B" (I and W together) |
    | `pipe.sums` | one of the functions into which `@update` is divided | the sums over stages that follow this function, in order: a list of `#pipe.sum` |
    | `pipe.stages` | a parameter that several stages have (a tied parameter) | these stages |
    | `pipe.differentiable` | an activation that one stage sends to the next | unit: the activation depends on a trained parameter, so its cotangent is sent back |
    | `pipe.slot` | arguments and results | a `#pipe.slot`: how long the value is kept between actions |
    | `pipe.inside` | arguments and results that stages send to each other as tiles | the `#dist.sharding` that the value has inside each stage |
  }];
  let useDefaultAttributePrinterParser = 1;
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
  let hasRegionResultAttrVerify = 1;
}

def Pipe_SlotAttr : AttrDef<Pipe_Dialect, "Slot"> {
  let mnemonic = "slot";
  let summary = "How long a value is kept between the actions of a stage";
  let description = [{
    With `pipe.slot = #pipe.slot<"recv_f:W">`, a value of each microbatch is
    kept from the event before the colon to the last of the comma-separated
    events after the colon. An event is an action of the stage, or a receive
    (`recv_f`, `recv_b`) or send (`send_f`, `send_b`) of the value. The actions
    are F (forward), I (gradients of inputs), W (gradients of weights) and B (I
    and W together). The values of a stage with the same text share an arena of
    the program, whose name ends with this text. The arena has one slot, that
    is, memory for one copy of these values, for each microbatch in flight.
    Instead of two events, the text may be one of the following words. UNSHARD,
    RESHARD and REDUCE_GRAD are actions of the schedule: they gather the
    parameters of a stage, free the gathered parameters, and reduce gradients
    over the data ranks.

    | text | what is kept |
    |---|---|
    | `"store"` | the inputs of all microbatches of a step |
    | `"unshard"` | gathered parameters, from UNSHARD to RESHARD |
    | `"reduced"` | reduced gradients, from REDUCE_GRAD to the update |
    | `"update"` | values that one of the functions of `@update` computes and a later one reads |
    | `"eval"` | activations of `@loss` and `@forward` |
    | `"version"` | versions of the parameters, in asynchronous schedules |
  }];
  let parameters = (ins "::mlir::StringAttr":$text);
  let assemblyFormat = "`<` $text `>`";
  let genVerifyDecl = 1;
}

def Pipe_SumAttr : AttrDef<Pipe_Dialect, "Sum"> {
  let mnemonic = "sum";
  let summary = "A value that stages sum between two functions of their update";
  let description = [{
    The `@update` of a pipeline stage is divided into several functions. Between
    two of them, values such as gradients of tied parameters are summed over
    stages. For example, `#pipe.sum<operand = "a", result = "b", stages = [0, 3]>`
    sums a value over stages 0 and 3: it is the result named "a" of one of these
    functions, and a later function takes the sum as its argument named "b".
    Without `stages`, the sum is over all stages.
  }];
  let parameters = (ins
    "::mlir::StringAttr":$operand, "::mlir::StringAttr":$result,
    OptionalParameter<"::mlir::DenseI64ArrayAttr">:$stages);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def Pipe_ScheduleAttr : AttrDef<Pipe_Dialect, "Schedule"> {
  let mnemonic = "schedule";
  let summary = "The schedule of a program with pipeline stages";
  let description = [{
    `axis` is the mesh axis of the pipeline, and `position` its index among the
    mesh axes. `link` is the class of the links between the ranks of this axis,
    such as "intra" (within a node). `name` is the schedule's name, and `table`
    its text in the format of a schedule's CSV file, which lists the actions of
    each rank in order. An asynchronous schedule updates parameters after each
    microbatch.
  }];
  let parameters = (ins "::mlir::StringAttr":$axis, "::mlir::StringAttr":$link,
    "int64_t":$position, "::mlir::StringAttr":$name, "::mlir::StringAttr":$table,
    DefaultValuedParameter<"bool", "false">:$asynchronous);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

class Pipe_Op<string mnemonic, list<Trait> traits = []> : Op<Pipe_Dialect, mnemonic, traits>;

def Pipe_Tensor : RankedTensorOf<[F64, F32, BF16, I64, I32]>;

def Pipe_SumStagesOp : Pipe_Op<"sum_stages", [MemoryEffects<[MemWrite]>, InferTypeOpAdaptor]> {
  let summary = "Sums values over pipeline stages and gives every stage the result";
  let description = [{
    Each stage in `stages` (all stages if `stages` is absent) has this operation, with
    operands of the same types. Result i is the sum of operand i over these stages. The
    stages that share a tied parameter sum its gradients with this operation. All stages
    sum the squares of their gradients (for the gradient norm), the loss and the weight
    of the loss.

    Since other stages wait for the operation, it is neither removed if its results are
    unread nor merged with an equal operation. Operands are not partial sums over the
    ranks of a stage: partial sums are first reduced within the stage, since each stage
    chooses its shardings separately. The stages are different programs, so the
    interpreter cannot evaluate a stage with this operation alone. In a program of one
    stage (a module without `pipe.stages`, or with `pipe.stages` = 1) it treats the
    operation as the identity.

    ```mlir
    %0 = pipe.sum_stages %gradient {stages = array<i64: 0, 3>} : tensor<7x4xf32>
    %1:3 = pipe.sum_stages %squares, %loss, %weight : tensor<f32>, tensor<f32>, tensor<f32>
    ```

    Constraints (the verifier's code cites them by these labels):
    - (S1) There is at least one operand.
    - (S2) `stages` has at least two entries, ascending, none negative.
    - (S3) In a module with `pipe.stage` and `pipe.stages`, the entries of `stages` are stages of the pipeline,
      and the module's own stage is among them.
  }];
  let arguments = (ins Variadic<Pipe_Tensor>:$inputs, OptionalAttr<DenseI64ArrayAttr>:$stages);
  let results = (outs Variadic<Pipe_Tensor>:$results);
  let assemblyFormat = "$inputs attr-dict `:` type($inputs)";
  let hasVerifier = 1;
}

#endif
