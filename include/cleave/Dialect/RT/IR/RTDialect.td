// The rt dialect: the host program of each rank, a flat list of commands.

#ifndef CLEAVE_DIALECT_RT_IR_RTDIALECT_TD
#define CLEAVE_DIALECT_RT_IR_RTDIALECT_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"

def RT_Dialect : Dialect {
  let name = "rt";
  let cppNamespace = "::cleave::rt";
  let summary = "Command lists that the runtime executes";
  let description = [{
    The dialect has one operation for each command of the runtime
    (`cleave/program.h`). Operations work on tensor values and each result is a
    new buffer, so that order and liveness are plain SSA until memory is
    planned. Each function is one action, that is, a command list that the
    runtime executes as a whole, such as the forward pass of a microbatch or an
    update. The dialect knows nothing of shardings.

    A *view* is a list `[offset, stride...]`, in elements, relative to the operand's or
    result's buffer; each operation defines the dimensions that the strides belong to.
    Views also express the transposes and slices of the operands of a library call.

    Memory planning adds `rt.buffer`, an address, to arguments and results of functions,
    and `rt.buffers`, the addresses of all results, to operations. Arena 0 is "state",
    which persists between actions. Arena 1 is "transient", for values within an action.

    Discardable attributes:

    | attribute | on | meaning |
    |---|---|---|
    | `rt.buffer` | arguments and results | the address, `#rt.address<arena, offset>` |
    | `rt.buffers` | operations | a list with the address of each result; `unit` for a token |
    | `rt.body` | functions | unit: the function is the body of an `rt.repeat`, and is not an action that the runtime executes by itself |
    | `rt.beyond` | launches | for each operand, the number of elements after its end that the kernel reads and masks |
    | `rt.arenas` | a module | the size of each arena in bytes |
    | `rt.stages` | a module of pipeline stages, in place of `rt.arenas` | a list with an `#rt.stage` for each stage: the sizes of its arenas, and for each arena from arena 2 on the interval for which values are kept in it (`pipe.slot`) |
    | `rt.lifetimes` | functions | a list with an `#rt.lifetime` for each value in the transient arena |
    | `rt.overlap` | functions | modelled seconds of computation, of collectives, and of exposed communication |
  }];
  let useDefaultTypePrinterParser = 1;
  let useDefaultAttributePrinterParser = 1;
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
  let hasRegionResultAttrVerify = 1;
}

class RT_Op<string mnemonic, list<Trait> traits = []> : Op<RT_Dialect, mnemonic, traits>;

def RT_TokenType : TypeDef<RT_Dialect, "Token"> {
  let mnemonic = "token";
  let summary = "An asynchronous collective that has started and has not ended";
}

def RT_AddressAttr : AttrDef<RT_Dialect, "Address"> {
  let mnemonic = "address";
  let summary = "Where a buffer is stored";
  let description = [{
    `#rt.address<1, 64>` is the address 64 bytes after the beginning of arena 1. An
    address is the same on all ranks; `rt.alias` adds offsets that depend on the rank.

    In the body of an `rt.repeat`, an address may depend on the iteration:
    `#rt.address<1, 64, trips = [0, 5, 256]>` is 256 bytes further in each
    iteration. The list has triples (depth, period, bytes). A triple adds
    `bytes` times the remainder of the iteration's index divided by `period`;
    `depth` is the number of loops around the loop whose iterations are counted.
    A period of 2 gives two addresses in turn.
  }];
  let parameters = (ins "int64_t":$arena, "int64_t":$offset,
                        OptionalParameter<"::mlir::DenseI64ArrayAttr">:$trips);
  let builders = [AttrBuilder<(ins "int64_t":$arena, "int64_t":$offset), [{
    return $_get($_ctxt, arena, offset, ::mlir::DenseI64ArrayAttr());
  }]>];
  let assemblyFormat = "`<` $arena `,` $offset (`,` `trips` `=` $trips^)? `>`";
  let genVerifyDecl = 1;
}

def RT_LifetimeAttr : AttrDef<RT_Dialect, "Lifetime"> {
  let mnemonic = "lifetime";
  let summary = "When a value in the transient arena is live, and where it is stored";
  let description = [{
    `#rt.lifetime<name = "nn.einsum", kind = "activation", first = 3, last = 7, offset = 64, size = 256>`
    is a value of 256 bytes that begins 64 bytes after the beginning of the transient arena.
    It is live from command 3 to command 7 of the action. `kind` is `activation` or
    `workspace`.
  }];
  let parameters = (ins "::mlir::StringAttr":$name, "::mlir::StringAttr":$kind,
    "int64_t":$first, "int64_t":$last, "int64_t":$offset, "int64_t":$size);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def RT_StageAttr : AttrDef<RT_Dialect, "Stage"> {
  let mnemonic = "stage";
  let summary = "The planned memory of a pipeline stage";
  let description = [{
    `#rt.stage<arenas = [64, 0, 128], slots = ["F:B"]>` has the size of each
    arena in bytes. Each arena from arena 2 on stores values of microbatches in
    flight; its size is the size for one microbatch. `slots` has, for each of
    these arenas, the interval for which the values are kept, as in `pipe.slot`:
    here from the stage's forward pass (F) to its backward pass (B).
  }];
  let parameters = (ins "::mlir::DenseI64ArrayAttr":$arenas, "::mlir::ArrayAttr":$slots);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def RT_ActivationAttr : I32EnumAttr<"Activation", "function applied to a product's elements", [
    I32EnumAttrCase<"None", 0, "none">, I32EnumAttrCase<"GeluTanh", 1, "gelu_tanh">,
    I32EnumAttrCase<"GeluErf", 2, "gelu_erf">, I32EnumAttrCase<"Relu", 3, "relu">,
    I32EnumAttrCase<"Silu", 4, "silu">]> {
  let cppNamespace = "::cleave::rt";
}

def RT_SumsOfAttr : I32EnumAttr<"SumsOf",
    "the operand of a product that is also summed along k", [
    I32EnumAttrCase<"None", 0, "none">, I32EnumAttrCase<"A", 1, "a">, I32EnumAttrCase<"B", 2, "b">]> {
  let cppNamespace = "::cleave::rt";
}

def RT_ConvKindAttr : I32EnumAttr<"ConvKind", "a convolution or a derivative of it", [
    I32EnumAttrCase<"Forward", 0, "forward">, I32EnumAttrCase<"InputGrad", 1, "input_grad">,
    I32EnumAttrCase<"FilterGrad", 2, "filter_grad">]> {
  let cppNamespace = "::cleave::rt";
}

def RT_CollectiveKindAttr : I32EnumAttr<"CollectiveKind", "pattern of a collective", [
    I32EnumAttrCase<"AllReduce", 0, "all_reduce">, I32EnumAttrCase<"AllGather", 1, "all_gather">,
    I32EnumAttrCase<"ReduceScatter", 2, "reduce_scatter">, I32EnumAttrCase<"AllToAll", 3, "all_to_all">,
    I32EnumAttrCase<"Permute", 4, "permute">, I32EnumAttrCase<"Broadcast", 5, "broadcast">,
    I32EnumAttrCase<"Exchange", 6, "exchange">, I32EnumAttrCase<"AllToAllV", 8, "all_to_all_v">]> {
  let cppNamespace = "::cleave::rt";
}

def RT_ReduceAttr : I32EnumAttr<"Reduce", "how a collective combines", [
    I32EnumAttrCase<"Sum", 0, "sum">, I32EnumAttrCase<"Max", 1, "max">, I32EnumAttrCase<"Min", 2, "min">]> {
  let cppNamespace = "::cleave::rt";
}

#endif
