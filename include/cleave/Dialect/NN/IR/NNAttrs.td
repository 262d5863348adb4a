// Attributes of the nn dialect: what arguments and results of functions are.

#ifndef CLEAVE_DIALECT_NN_IR_NNATTRS_TD
#define CLEAVE_DIALECT_NN_IR_NNATTRS_TD

include "cleave/Dialect/NN/IR/NNDialect.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"

def NN_Role : I32EnumAttr<"Role", "what an argument or result of a function is", [
  I32EnumAttrCase<"Parameter", 0, "parameter">,
  I32EnumAttrCase<"Buffer", 1, "buffer">,
  I32EnumAttrCase<"Constant", 2, "constant">,
  I32EnumAttrCase<"State", 3, "state">,
  I32EnumAttrCase<"Count", 4, "count">,
  I32EnumAttrCase<"Gradient", 5, "gradient">,
  I32EnumAttrCase<"Tokens", 6, "tokens">,
  I32EnumAttrCase<"Labels", 7, "labels">,
  I32EnumAttrCase<"SampleIds", 8, "sample_ids">,
  I32EnumAttrCase<"Input", 9, "input">,
  I32EnumAttrCase<"Activation", 10, "activation">,
  I32EnumAttrCase<"Cotangent", 11, "cotangent">,
  I32EnumAttrCase<"Residual", 12, "residual">,
  I32EnumAttrCase<"Seed", 13, "seed">,
  I32EnumAttrCase<"Step", 14, "step">,
  I32EnumAttrCase<"Microbatch", 15, "microbatch">,
  I32EnumAttrCase<"LearningRate", 16, "lr">,
  I32EnumAttrCase<"Loss", 17, "loss">,
  I32EnumAttrCase<"Weight", 18, "weight">,
  I32EnumAttrCase<"Accumulator", 19, "accumulator">,
  I32EnumAttrCase<"Metric", 20, "metric">,
  I32EnumAttrCase<"Output", 21, "output">,
  I32EnumAttrCase<"Tap", 22, "tap">
]> {
  let cppNamespace = "::cleave::nn";
  let genSpecializedAttr = 0;
  let description = [{
    `nn.role = #nn.role<parameter>` on an argument or result. The dialect's
    description says what each role means.
  }];
}

def NN_RoleAttr : EnumAttr<NN_Dialect, NN_Role, "role"> {
  let assemblyFormat = ?;
  let hasCustomAssemblyFormat = 1;
}

class NN_Attr<string name, string attrMnemonic> : AttrDef<NN_Dialect, name> {
  let mnemonic = attrMnemonic;
}

def NN_ViewAttr : NN_Attr<"View", "view"> {
  let summary = "How the bytes of a tensor of the file are an argument";
  let description = [{
    `nn.view = #nn.view<shape = [6, 12], view = [6, 3, 4]>` on an argument or
    result: the file has a tensor of `shape`; its bytes in row-major order are
    one of `view`, and dimension i of the port is dimension `permutation[i]` of
    that. Without `permutation` the dimensions keep their order. Where there is
    no `nn.view`, the file has the port's shape.

    Constraints:
    - (V1) `shape` and `view` have as many elements as the port's whole tensor.
    - (V2) `permutation` has each dimension of `view` once.
  }];
  let parameters = (ins
    "::mlir::DenseI64ArrayAttr":$shape,
    "::mlir::DenseI64ArrayAttr":$view,
    OptionalParameter<"::mlir::DenseI64ArrayAttr">:$permutation);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def NN_DataAttr : NN_Attr<"Data", "data"> {
  let summary = "Where the bytes of a tensor are";
  let description = [{
    `nn.data = #nn.data<file = "w.bin", offset = 0, length = 24, dtype = "f32">`
    on an argument: `length` bytes from `offset` on, elements of type `dtype` as
    the file has them. The file is relative to the model's folder.
  }];
  let parameters = (ins
    "::mlir::StringAttr":$file, "int64_t":$offset, "int64_t":$length,
    "::mlir::StringAttr":$dtype);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def NN_TiedAttr : NN_Attr<"Tied", "tied"> {
  let summary = "Another tensor of the file that is the same parameter";
  let description = [{
    `nn.tied = [#nn.tied<name = "head", transposed = true>]` on an argument.
  }];
  let parameters = (ins "::mlir::StringAttr":$name, "bool":$transposed);
  let assemblyFormat = "`<` struct(params) `>`";
}

def NN_PartAttr : NN_Attr<"Part", "part"> {
  let summary = "A tensor of the file that is one slice of an argument";
  let description = [{
    `nn.parts = [#nn.part<name = "w">, #nn.part<name = "v">]` on an argument:
    these tensors of the file follow each other along dimension 0, which each of
    them lacks. The argument's own name is the first's; `data` says where the
    bytes of each are, and the argument has no `nn.data`.
  }];
  let parameters = (ins
    "::mlir::StringAttr":$name, OptionalParameter<"DataAttr">:$data);
  let assemblyFormat = "`<` struct(params) `>`";
}

def NN_InitKind : I32EnumAttr<"InitKind", "how a parameter is initialized", [
  I32EnumAttrCase<"Zeros", 0, "zeros">,
  I32EnumAttrCase<"Constant", 1, "constant">,
  I32EnumAttrCase<"Normal", 2, "normal">,
  I32EnumAttrCase<"Uniform", 3, "uniform">
]> {
  let cppNamespace = "::cleave::nn";
  let genSpecializedAttr = 0;
}

def NN_InitAttr : NN_Attr<"Init", "init"> {
  let summary = "What a parameter starts from where no file has it";
  let description = [{
    `nn.init = #nn.init<normal, a = 0.0 : f64, b = 0.02 : f64>` on an argument
    without `nn.data`: `zeros`; `constant` a; `normal` with mean a and standard
    deviation b; `uniform` from a to b. `a` is 0 and `b` is 1 where they are left
    out. A parameter with neither `nn.data` nor `nn.init` is normal with
    deviation 0.02 if it has two dimensions or more, else zeros.
  }];
  let parameters = (ins
    EnumParameter<NN_InitKind>:$kind,
    OptionalParameter<"::mlir::FloatAttr">:$a,
    OptionalParameter<"::mlir::FloatAttr">:$b);
  let assemblyFormat = "`<` $kind (`,` `a` `=` $a^)? (`,` `b` `=` $b^)? `>`";
}

def NN_RouterCounts : I32EnumAttr<"RouterCounts", "which slots of experts are counted", [
  I32EnumAttrCase<"Chosen", 0, "chosen">,
  I32EnumAttrCase<"Taken", 1, "taken">
]> {
  let cppNamespace = "::cleave::nn";
  let genSpecializedAttr = 0;
}

def NN_RouterAttr : NN_Attr<"Router", "router"> {
  let summary = "The router whose choices an accumulator counts";
  let description = [{
    `nn.router = #nn.router<name = "mlp.gate", counts = chosen, slots_per_token = 2,
    product = "dot">` on an accumulator with one count for each expert: of the
    slots that the router chose, or of those that the experts took. `product` is
    the node that reads the choices first. Where an expert does not take all
    slots, `capacity` is the most that it takes of `capacity_of`. `bias` is the
    buffer that a step moves by what was chosen.
  }];
  let parameters = (ins
    "::mlir::StringAttr":$name,
    EnumParameter<NN_RouterCounts>:$counts,
    DefaultValuedParameter<"int64_t", "0">:$slots_per_token,
    OptionalParameter<"::mlir::StringAttr">:$product,
    DefaultValuedParameter<"int64_t", "0">:$capacity,
    DefaultValuedParameter<"int64_t", "0">:$capacity_of,
    OptionalParameter<"::mlir::StringAttr">:$bias);
  let assemblyFormat = "`<` struct(params) `>`";
}

def NN_ShardAttr : NN_Attr<"Shard", "shard"> {
  let summary = "The sharding of some parameters, by hand";
  let description = [{
    `nn.shard = [#nn.shard<match = ".*head", dims = [#dist.axes<{"x"}>,
    #dist.axes<{}>]>]` on a module, until `strategy-shard` has read it: parameters
    whose name `match` matches, a regular expression, are split by these axes,
    a list for each dimension of the file's tensor, or of `view`, which cuts the
    dimensions of the file's.
  }];
  let parameters = (ins
    "::mlir::StringAttr":$match, "::mlir::ArrayAttr":$dims,
    OptionalParameter<"::mlir::DenseI64ArrayAttr">:$view);
  let assemblyFormat = "`<` struct(params) `>`";
}

def NN_LookupAttr : NN_Attr<"Lookup", "lookup"> {
  let summary = "A part of an input whose elements are indices of a table";
  let description = [{
    `nn.lookups = [#nn.lookup<offsets = [0, 0], sizes = [2, 3], strides = [1, 1],
    rows = 200, table = "wte">]` on an input: the elements of that part choose
    among `rows` rows. `table` is the table's name in the model, empty where it
    has none; `bits`: how many of an element's lowest bits are read, with their
    sign, 0 for all.
  }];
  let parameters = (ins
    "::mlir::DenseI64ArrayAttr":$offsets, "::mlir::DenseI64ArrayAttr":$sizes,
    "::mlir::DenseI64ArrayAttr":$strides, "int64_t":$rows,
    "::mlir::StringAttr":$table,
    DefaultValuedParameter<"int64_t", "0">:$bits);
  let assemblyFormat = "`<` struct(params) `>`";
}

#endif
