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

    Further discardable attributes of arguments and results; those that have an
    attribute of this dialect are described there:

    | attribute | meaning |
    |---|---|
    | `nn.data`, `nn.view`, `nn.tied`, `nn.parts` | where the file has the tensor, and how |
    | `nn.init` | what a parameter starts from where no file has it |
    | `nn.router` | which router an accumulator counts |
    | `nn.frozen` | unit, of a constant: a parameter of the model that is not trained |
    | `nn.vector` | unit, of a parameter `[C, 1, ...]` that is only added or multiplied: a vector in the module that the file was made of |
    | `nn.count` | of a moment of AdamW: the argument of `@update` that counts the updates of its parameter |
    | `nn.batch_dim` | an `i64`, the dimension that counts samples, or -1 for none; where nothing is said, dimension 0 of `tokens`, `labels` and `sample_ids` |
    | `nn.position_dim` | an `i64`, the dimension that counts positions of the sequence, or -1 for none |
    | `nn.whole_call` | unit, of a result: computed from all samples of a call together, so that neither calls nor padding may cut them differently |
    | `nn.whole_step` | of an input with the samples of the whole step: the name of the input that has those of the microbatch |
    | `nn.vocabulary` | an `i64`, of integers: the rows of the smallest table that all of them index |
    | `nn.lookups` | of integers: the tables that parts of them index |

    Of operations:

    | attribute | on | meaning |
    |---|---|---|
    | `nn.shard` | a module | shardings of parameters by hand, until `strategy-shard` |
    | `nn.unread_inputs` | a module | inputs of the graph that no node reads, and that the function lacks |
    | `nn.graph_digest` | a module | what the graph computes, whatever its weights and sizes are |
    | `nn.positions` | a module of a pipeline stage | unit: the function that was cut has positions, though this stage may have none |
    | `nn.constants` | `@forward` | names of float tensors of the file that were taken for constants |
    | `nn.storage` | `arith.truncf` | unit: it rounds what is stored, so that a kernel that widens it again may read the value as it was |
    | `nn.reorder` | a gather along one dimension | unit: its indices are all of that dimension in another order |
    | `nn.when` | operations and launches | an `i64`: it runs where the `dist.condition` of that number holds |
    | `nn.row_share` | a local operation on rows of experts | an `i64`: its rows are such a share of the tensor's on average |
    | `nn.grouped` | the convolution of a tile of groups | unit |
    | `nn.candidates` | the top-k of a tile | unit: it gives candidates, not the result |
    | `nn.kernel` | functions | unit: it becomes generated code |
    | `nn.extent`, `nn.grain` | kernels | an `i64`: how many parallel iterations there are, and how few are not worth a thread |
    | `nn.inplace` | kernels | an `array<i64>` of pairs (result, operand), of which the result may take the operand's memory |
    | `nn.align` | kernels | an `array<i64>`: bytes of which the addresses of operands, then of results are multiples |
    | `nn.ptx` | a GPU module | the version of PTX that it is compiled to |
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
