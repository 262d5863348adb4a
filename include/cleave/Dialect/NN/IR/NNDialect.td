// The nn dialect: a tensor program with value semantics and static shapes.
// It knows nothing of meshes or devices.

#ifndef CLEAVE_DIALECT_NN_IR_NNDIALECT_TD
#define CLEAVE_DIALECT_NN_IR_NNDIALECT_TD

include "mlir/IR/OpBase.td"
include "mlir/IR/EnumAttr.td"

def NN_Dialect : Dialect {
  let name = "nn";
  let cppNamespace = "::cleave::nn";
  let summary = "Tensor programs of neural networks, on one logical device";
  let description = [{
    Values are ranked tensors of static shape. Plain elementwise work is
    upstream `arith` and `math` on tensors; broadcasts are explicit
    (`nn.broadcast`). This dialect adds the structured operations, and, where a
    derivative deserves it, a first-class gradient operation.

    Function arguments and results carry two discardable attributes:
    `nn.name` (the name at the boundary: a parameter, a state, an input) and
    `nn.role`, a `#nn.role<...>` with one of

    | role | meaning |
    |---|---|
    | `parameter`, `buffer` | a named tensor of the model; trained, or not (`@update` may give a new one) |
    | `constant` | a tensor of the file that is never trained |
    | `state` | optimizer state, named `PARAMETER.m`, `PARAMETER.v` |
    | `count` | how often AdamW has updated the parameters that began to train together |
    | `gradient` | gradient of the loss sum, named like its parameter |
    | `tokens`, `labels`, `sample_ids`, `input` | data of one microbatch, dimension 0 is the batch |
    | `activation`, `cotangent` | what crosses from a pipeline stage to the next, and back |
    | `residual` | what one action of a stage saves for another, in a slot (`pipe.slot`) |
    | `seed`, `step`, `microbatch`, `lr` | rank-0 scalars of the parameter block |
    | `loss`, `weight` | the sum over counted labels, and their count |
    | `accumulator` | another sum over the samples of a step; `nn.router` says which router it counts |
    | `metric`, `output`, `tap` | results for people, for `infer`, for `check` |
  }];
  let hasConstantMaterializer = 1;
  let useDefaultAttributePrinterParser = 1;
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
  let hasRegionResultAttrVerify = 1;
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect"];
}

class NN_Op<string mnemonic, list<Trait> traits = []> : Op<NN_Dialect, mnemonic, traits>;

def NN_FloatTensor : RankedTensorOf<[F64, F32, BF16]>;
def NN_IntTensor : RankedTensorOf<[I64, I32, I1]>;
def NN_IndexTensor : RankedTensorOf<[I64, I32]>;
def NN_KeyTensor : RankedTensorOf<[I64]>;
def NN_BoolTensor : RankedTensorOf<[I1]>;
def NN_Tensor : RankedTensorOf<[F64, F32, BF16, I64, I32, I1]>;
def NN_Rank0Pred : And<[CPred<"::llvm::isa<::mlir::RankedTensorType>($_self)">,
                        CPred<"::llvm::cast<::mlir::RankedTensorType>($_self).getRank() == 0">]>;
def NN_FloatScalar : 0DTensorOf<[F64, F32, BF16]>;
def NN_IntScalar : Type<And<[NN_Rank0Pred, CPred<"::llvm::cast<::mlir::RankedTensorType>($_self).getElementType().isInteger(64)">]>,
                        "tensor<i64>", "::mlir::RankedTensorType">,
                   BuildableType<"::mlir::RankedTensorType::get({}, $_builder.getIntegerType(64))">;

#endif
