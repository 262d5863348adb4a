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
    Values are ranked tensors of static shape. Elementwise operations are those of the
    upstream `arith` and `math` dialects, on tensors; broadcasts are explicit
    (`nn.broadcast`). This dialect adds operations that are not elementwise, such as
    contractions and attention, and operations that compute the gradients of some of
    them.

    Function arguments and results carry two discardable attributes: `nn.name`, the
    name of the parameter, state, input or output, and `nn.role`, a `#nn.role<...>` with
    one of the following values:

    | role | meaning |
    |---|---|
    | `parameter`, `buffer` | a named tensor of the model: trained (`parameter`), or not trained (`buffer`; `@update` may give a buffer a new value) |
    | `constant` | a tensor of the model file that is never trained |
    | `state` | optimizer state, named `PARAMETER.m`, `PARAMETER.v` |
    | `count` | the number of AdamW updates so far; parameters that began to train at the same step share one count |
    | `gradient` | the gradient of the summed loss with respect to a parameter; it has the name of the parameter |
    | `tokens`, `labels`, `sample_ids`, `input` | data of one microbatch; dimension 0 is the batch |
    | `activation`, `cotangent` | a value that one pipeline stage sends to the next, and its cotangent, which is sent back |
    | `residual` | a value of a microbatch that one action of a pipeline stage (such as its forward pass) saves for a later action (its attribute `pipe.slot` names both) |
    | `seed`, `step`, `microbatch`, `lr` | scalars (tensors of rank 0) that the runtime provides |
    | `loss`, `weight` | the loss summed over the counted labels, and the number of counted labels |
    | `accumulator` | a sum over the samples of a step other than `loss` and `weight`, such as how often a router chose each expert (`nn.router`) |
    | `metric`, `output`, `tap` | a metric that is reported to the user (`metric`), an output of `infer` (`output`), an intermediate value that `check` compares (`tap`) |

    The next table lists further discardable attributes of arguments and
    results. If the value of an attribute is an attribute of this dialect, such
    as `#nn.view<...>`, the section of that attribute on this page describes it.

    | attribute | meaning |
    |---|---|
    | `nn.data`, `nn.view`, `nn.tied`, `nn.parts` | where the model file stores the tensor, and in which form |
    | `nn.init` | the initial value of a parameter that no file stores |
    | `nn.router` | on an accumulator: the router (of a mixture-of-experts layer) whose choices the accumulator counts |
    | `nn.frozen` | unit, on a constant: the constant is a parameter of the model that is not trained |
    | `nn.vector` | unit, on a parameter of shape `[C, 1, ...]` that is only added or multiplied: the parameter was a vector `[C]` in the module from which the model file was exported |
    | `nn.count` | on a moment of AdamW: the name of the argument of `@update` that counts the updates of the moment's parameter |
    | `nn.batch_dim` | an `i64`, the dimension that counts samples, or -1 for none; the default is dimension 0 of `tokens`, `labels` and `sample_ids` |
    | `nn.position_dim` | an `i64`, the dimension that counts positions of the sequence, or -1 for none |
    | `nn.whole_call` | unit, on a result: the result depends on all samples together that one call of the function processes, so the samples may neither be divided into calls differently nor be padded |
    | `nn.whole_step` | on an input with the samples of the whole step, not only of the microbatch: the name of the input with the same data for the microbatch |
    | `nn.vocabulary` | an `i64`, on an integer input: the elements are indices into tables, and the smallest of these tables has this number of rows |
    | `nn.lookups` | on an integer input: the tables whose rows are selected by slices of the input, a list of `#nn.lookup` |

    Discardable attributes of operations:

    | attribute | on | meaning |
    |---|---|---|
    | `nn.shard` | a module | shardings of parameters that the user gives; `strategy-shard` removes the list |
    | `nn.unread_inputs` | a module | inputs of the graph that no node reads and for which the function has no argument |
    | `nn.graph_digest` | a module | a hash of what the model computes, independent of the values of its weights; for an ONNX model, also of the sizes of dimensions |
    | `nn.positions` | a module of a pipeline stage | unit: the function that was cut into stages has a dimension of sequence positions, even if no value of this stage has one |
    | `nn.constants` | `@forward` | names of float tensors of the model file that the importer treats as constants, so that they are not trained |
    | `nn.storage` | `arith.truncf` | unit: the operation only rounds a value for storage, so a kernel that also widens the result may read the value before rounding |
    | `nn.reorder` | a gather along one dimension | unit: the indices are a permutation of all indices of that dimension |
    | `nn.frozen_row` | a gather | an `i64`: the row of the table that gets no gradient from this gather (`padding_idx` of PyTorch's embedding) |
    | `nn.when` | operations and launches | an `i64`: the number of a `dist.condition`; the operation needs to run only if that condition is true |
    | `nn.row_share` | `nn.grouped_dot` or `nn.grouped_outer` with only a rank's tile of the expert matrices | an `i64` n: on average, one in n rows selects a matrix of this tile |
    | `nn.grouped` | a convolution of only a rank's tile of the groups | unit: the unsharded convolution has several groups, even if the tile has one |
    | `nn.candidates` | the top-k of a rank's tile | unit: the results are candidates, from which the top-k of the whole dimension is chosen |
    | `nn.kernel` | functions | unit: the function is a kernel, for which code is generated |
    | `nn.extent`, `nn.grain` | kernels | an `i64` each: the number of parallel iterations, and the smallest number of iterations that is worth a thread |
    | `nn.inplace` | kernels | an `array<i64>` of pairs (result, operand): the result may take the operand's memory |
    | `nn.align` | kernels | an `array<i64>`: the alignments in bytes of the addresses of operands, then of results |
    | `nn.ptx` | a GPU module | the PTX text that the module was compiled to |
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
