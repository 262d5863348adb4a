// The pipe dialect: what the stages of a pipeline do together.

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
    A model that is cut into stages is a module of modules, one for each stage.
    This dialect says where a program is cut and what its stages do together; it
    does not know how a stage computes.

    Discardable attributes:

    | attribute | on | meaning |
    |---|---|---|
    | `pipe.stage` | operations, before the cut | the stage that computes it, an `i64` |
    | `pipe.stage`, `pipe.stages` | a module | which stage it is, and of how many |
    | `pipe.stage` | functions, once the stages share a module | the stage |
    | `pipe.scalar` | a module | the type of the loss, which only the last stage has |
    | `pipe.schedule` | a module of all stages | which rank does what when: `{axis, link, position, name, table[, asynchronous]}`, the table as its CSV file |
    | `pipe.action` | collectives of a stage's `@loss_grad` | the action that they belong to: "F", "I", "W" or "B" |
    | `pipe.sums` | a part of `@update` | what the stages add up after it, in order: a list of `#pipe.sum` |
    | `pipe.stages` | a parameter of a stage | all stages that have the parameter, where it is tied |
    | `pipe.differentiable` | an activation at a cut | unit: a trained parameter stands before it |
    | `pipe.slot` | arguments and results | a `#pipe.slot`: how long it is kept between actions |
    | `pipe.inside` | arguments and results that pass from stage to stage in tiles | the `#dist.sharding` that the value has inside the stages |
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
    `pipe.slot = #pipe.slot<"recv_f:W">`: a value of each microbatch, from the
    event before the colon to the last of those after it, which commas separate:
    the parts F, I, W and B of a stage's step, or that it is received (`recv_f`,
    `recv_b`) or sent (`send_f`, `send_b`). Values of one slot share memory, so
    that its text names an arena of the program.

    | slot | what is kept |
    |---|---|
    | `"store"` | the inputs of all microbatches of a step |
    | `"unshard"` | gathered parameters, from UNSHARD to RESHARD |
    | `"reduced"` | reduced gradients, from REDUCE_GRAD to the update |
    | `"update"` | from one part of the update to another |
    | `"eval"` | activations of `@loss` and `@forward` |
    | `"version"` | versions of the parameters, of schedules that do not wait |
  }];
  let parameters = (ins "::mlir::StringAttr":$text);
  let assemblyFormat = "`<` $text `>`";
  let genVerifyDecl = 1;
}

def Pipe_SumAttr : AttrDef<Pipe_Dialect, "Sum"> {
  let mnemonic = "sum";
  let summary = "A sum over stages after a part of the update";
  let description = [{
    `#pipe.sum<operand = "sum.0.0", result = "sum.0.0.all", stages = [0, 3]>`:
    the names of the result that each stage gives and of the argument that a
    later part of `@update` takes; over all stages where `stages` is left out.
  }];
  let parameters = (ins
    "::mlir::StringAttr":$operand, "::mlir::StringAttr":$result,
    OptionalParameter<"::mlir::DenseI64ArrayAttr">:$stages);
  let assemblyFormat = "`<` struct(params) `>`";
}

class Pipe_Op<string mnemonic, list<Trait> traits = []> : Op<Pipe_Dialect, mnemonic, traits>;

def Pipe_Tensor : RankedTensorOf<[F64, F32, BF16, I64, I32]>;

def Pipe_SumStagesOp : Pipe_Op<"sum_stages", [MemoryEffects<[MemWrite]>, InferTypeOpAdaptor]> {
  let summary = "The sum over the stages of what each gives, the same on all";
  let description = [{
    Each stage of `stages` (all, where it is left out) has this operation, with
    operands of the same types; result i is the sum over these stages of their
    operands i. The stages that share a parameter add its gradients so, and all
    stages the squares of their gradients, the loss and its weight.

    Since the others wait for it, it is neither removed where its results are not
    read nor merged with another. Operands are whole: partial sums are summed
    within the stage first, since another stage could have made another choice. The
    stages are different programs, so one of them alone cannot be
    evaluated; the interpreter takes it as the identity in a program of one
    stage (a module without `pipe.stages`, or where it is 1).

    ```mlir
    %0 = pipe.sum_stages %gradient {stages = array<i64: 0, 3>} : tensor<7x4xf32>
    %1:3 = pipe.sum_stages %squares, %loss, %weight : tensor<f32>, tensor<f32>, tensor<f32>
    ```

    Constraints:
    - (S1) There is an operand.
    - (S2) `stages` has at least two entries, ascending, none negative.
    - (S3) In a module with `pipe.stage` and `pipe.stages`, `stages` are stages of it, and its own is among them.
  }];
  let arguments = (ins Variadic<Pipe_Tensor>:$inputs, OptionalAttr<DenseI64ArrayAttr>:$stages);
  let results = (outs Variadic<Pipe_Tensor>:$results);
  let assemblyFormat = "$inputs attr-dict `:` type($inputs)";
  let hasVerifier = 1;
}

#endif
