// Attributes of the nn dialect, mainly for arguments and results of functions.

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
    `nn.role = #nn.role<parameter>` on an argument or result gives its role. The
    description of the `nn` dialect says what each role means.
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
  let summary = "The shape of a tensor in the model file, if the program uses another shape";
  let description = [{
    With `nn.view = #nn.view<shape = [6, 12], view = [6, 3, 4]>` on an argument or
    result, the model file has a tensor of shape `shape`. Its elements in row-major
    order are read as a tensor of shape `view`, and dimension i of the argument or
    result is dimension `permutation[i]` of the tensor of shape `view`. Without
    `permutation` the dimensions keep their order. Without `nn.view`, the tensor in the
    file has the shape of the argument or result.

    Constraints (the verifier's code cites them by these labels):
    - (V1) `shape` and `view` have as many elements as the unsharded argument or result.
    - (V2) `permutation` lists each dimension of `view` once.
  }];
  let parameters = (ins
    "::mlir::DenseI64ArrayAttr":$shape,
    "::mlir::DenseI64ArrayAttr":$view,
    OptionalParameter<"::mlir::DenseI64ArrayAttr">:$permutation);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def NN_DataAttr : NN_Attr<"Data", "data"> {
  let summary = "File and byte range of a tensor";
  let description = [{
    `nn.data = #nn.data<file = "w.bin", offset = 0, length = 24, dtype = "f32">`
    on an argument says that `file` stores the tensor in `length` bytes from byte
    `offset` on, with elements of type `dtype`. The path of the file is relative to the
    model's folder.
  }];
  let parameters = (ins
    "::mlir::StringAttr":$file, "int64_t":$offset, "int64_t":$length,
    "::mlir::StringAttr":$dtype);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def NN_TiedAttr : NN_Attr<"Tied", "tied"> {
  let summary = "Another tensor of the model file that is the same parameter";
  let description = [{
    `nn.tied = [#nn.tied<name = "head", transposed = true>]` on an argument lists the
    other tensors of the model file that hold the same parameter, transposed or not.
  }];
  let parameters = (ins "::mlir::StringAttr":$name, "bool":$transposed);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def NN_PartAttr : NN_Attr<"Part", "part"> {
  let summary = "A tensor of the model file that is one slice of an argument";
  let description = [{
    `nn.parts = [#nn.part<name = "w">, #nn.part<name = "v">]` on an argument lists
    tensors of the model file that are stacked along a new dimension 0 to give the
    argument. The argument has the name of the first part. `data` gives the byte range
    of each part, and the argument itself has no `nn.data`.
  }];
  let parameters = (ins
    "::mlir::StringAttr":$name, OptionalParameter<"DataAttr">:$data);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
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
  let summary = "The initial value of a parameter that no file stores";
  let description = [{
    `nn.init = #nn.init<normal, a = 0.0 : f64, b = 0.02 : f64>` on an argument
    without `nn.data` gives its initial value: `zeros`, `constant` with value a,
    `normal` with mean a and standard deviation b, or `uniform` from a to b. The
    default of `a` is 0, the default of `b` is 1. A parameter with neither `nn.data`
    nor `nn.init` is initialized from a normal distribution with standard deviation
    0.02 if it has two dimensions or more, otherwise with zeros.
  }];
  let parameters = (ins
    EnumParameter<NN_InitKind>:$kind,
    OptionalParameter<"::mlir::FloatAttr">:$a,
    OptionalParameter<"::mlir::FloatAttr">:$b);
  let assemblyFormat = "`<` $kind (`,` struct($a, $b)^)? `>`";
  let genVerifyDecl = 1;
}

def NN_RouterCounts : I32EnumAttr<"RouterCounts",
    "which choices of experts are counted", [
  I32EnumAttrCase<"Chosen", 0, "chosen">,
  I32EnumAttrCase<"Taken", 1, "taken">
]> {
  let cppNamespace = "::cleave::nn";
  let genSpecializedAttr = 0;
}

def NN_RouterAttr : NN_Attr<"Router", "router"> {
  let summary = "The router whose choices of experts an accumulator counts";
  let description = [{
    The attribute is set on an accumulator with one count for each expert, for
    example

    ```
    nn.router = #nn.router<name = "mlp.gate", counts = chosen,
                           slots_per_token = 2, product = "dot">
    ```

    With `counts = chosen` an expert's count is the number of tokens that chose
    the expert, with `counts = taken` the number of these tokens that the expert
    accepted. `slots_per_token` is the number of experts that a token chooses,
    or 0 if unknown. `product` is the name of the first expert product
    (`nn.grouped_dot`) that reads the router's choices. If experts have a
    limited capacity, a sample (or a microbatch) has `capacity_of` token-expert
    pairs in total, and each expert accepts at most `capacity` of them; 0 means
    no limit. `bias` is the name of the router's bias, a buffer that each
    training step changes depending on the counts.
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
  let genVerifyDecl = 1;
}

def NN_ShardAttr : NN_Attr<"Shard", "shard"> {
  let summary = "A sharding that the user gives for parameters with matching names";
  let description = [{
    `nn.shard = [#nn.shard<match = ".*head", dims = [#dist.axes<{"x"}>,
    #dist.axes<{}>]>]` on a module lists the shardings that the user gives; the pass
    `strategy-shard` reads and removes the list. An entry shards the parameters with a
    name that matches the regular expression `match`. `dims` has a list of mesh axes for
    each dimension of the tensor in the model file or, if there is a `view`, for each
    dimension of `view`. `view` is a shape in which dimensions of the tensor in the file
    are split into several dimensions.
  }];
  let parameters = (ins
    "::mlir::StringAttr":$match, "::mlir::ArrayAttr":$dims,
    OptionalParameter<"::mlir::DenseI64ArrayAttr">:$view);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def NN_LookupAttr : NN_Attr<"Lookup", "lookup"> {
  let summary = "A slice of an input that holds indices into a table";
  let description = [{
    `nn.lookups = [#nn.lookup<offsets = [0, 0], sizes = [2, 3], strides = [1, 1],
    rows = 200, table = "wte">]` on an input says that the elements of the slice
    (`offsets`, `sizes`, `strides`) are indices into a table of `rows` rows. `table` is
    the table's name in the model, empty if the table has no name. `bits` is the number
    of low bits of an element that are read, as a signed integer, or 0 for all bits.
  }];
  let parameters = (ins
    "::mlir::DenseI64ArrayAttr":$offsets, "::mlir::DenseI64ArrayAttr":$sizes,
    "::mlir::DenseI64ArrayAttr":$strides, "int64_t":$rows,
    "::mlir::StringAttr":$table,
    DefaultValuedParameter<"int64_t", "0">:$bits);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

#endif
