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
    (`cleave/program.h`). Operations have tensor values as operands and results,
    and each result is a new buffer. So until memory is planned, SSA uses
    determine the order of commands and the liveness of buffers. Each function
    is one action, that is, a command list that the runtime executes as a whole,
    such as the forward pass of a microbatch or an update. The dialect knows
    nothing of shardings.

    A *view* is a list `[offset, stride...]` that says where the elements of an operand or
    result are in its buffer. Offset and strides are in elements, and the description of
    each operation says to which dimensions the strides belong. So the operands of a
    library call can be transposes and slices of a buffer without a copy.

    Memory planning adds `rt.buffer`, an address, to arguments and results of functions,
    and `rt.buffers`, the addresses of all results, to operations. Memory consists of
    arenas. Arena 0, "state", persists between actions. Arena 1, "transient", has the
    values that live only within an action.

    Discardable attributes:

    | attribute | on | meaning |
    |---|---|---|
    | `rt.buffer` | arguments and results | the address, `#rt.address<arena, offset>` |
    | `rt.buffers` | operations | a list with the address of each result; `unit` for a token |
    | `rt.body` | functions | unit: the function is the body of an `rt.repeat`, and is not an action that the runtime executes by itself |
    | `rt.beyond` | launches | for each operand, the number of elements beyond its end that the kernel may read, although it masks their values out |
    | `rt.arenas` | a module | the size of each arena in bytes |
    | `rt.stages` | a module of pipeline stages, in place of `rt.arenas` | a list with an `#rt.stage` for each stage: the sizes of its arenas, and for each arena from arena 2 on the interval for which values are kept in it (`pipe.slot`) |
    | `rt.lifetimes` | functions | a list with an `#rt.lifetime` for each value in the transient arena |
    | `rt.overlap` | functions | three modelled times in seconds: of computation, of collectives, and of exposed communication (collectives that computation does not hide) |
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
  let summary = "An asynchronous collective that has been started, for the `rt.wait` that ends it";
}

def RT_AddressAttr : AttrDef<RT_Dialect, "Address"> {
  let mnemonic = "address";
  let summary = "Where a buffer is stored";
  let description = [{
    `#rt.address<1, 64>` is the address 64 bytes after the beginning of arena 1. An
    address is the same on all ranks; `rt.alias` adds offsets that depend on the rank.

    In the body of an `rt.repeat`, an address may depend on the iteration. For example,
    `#rt.address<1, 64, trips = [0, 5, 256]>` is 256 bytes further in each of five
    consecutive iterations, and then starts again at 64. `trips` has triples (depth,
    period, bytes), each of which adds `bytes` times (i mod `period`) to the offset,
    where i is the index of the iteration. `depth` says which of several nested loops
    is meant: it is the number of loops around this loop. A period of 2 gives two
    addresses that alternate.
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
    `#rt.stage<arenas = [64, 0, 128], slots = ["F:B"]>` has the size in bytes of each
    arena: 64 of "state", 0 of "transient", 128 of arena 2. Each arena from arena 2 on
    stores values that are kept between actions, such as those of microbatches in
    flight; its size is the size for one microbatch. `slots` has, for each of these
    arenas, the text of `pipe.slot` that says how long the values are kept: here from
    the stage's forward pass (F) to its backward pass (B).
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
