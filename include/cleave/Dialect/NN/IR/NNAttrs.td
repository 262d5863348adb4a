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

#endif
