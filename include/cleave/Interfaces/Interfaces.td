// The five questions that every operation answers: how it splits, what its
// derivative is, what it costs, what it computes, and how it becomes a kernel.
// All models are external (lib/Interfaces/<Question>/<Family>.cpp), so that
// upstream arith and math operations answer like our own, and the dialects
// know nothing of the phases that ask.

#ifndef CLEAVE_INTERFACES_INTERFACES_TD
#define CLEAVE_INTERFACES_INTERFACES_TD

include "mlir/IR/OpBase.td"

def ShardingRuleInterface : OpInterface<"ShardingRuleInterface"> {
  let cppNamespace = "::cleave";
  let description = [{
    How an operation splits, as factors: each dimension of each operand and
    result is a product of factors, and a factor that is split stands for the
    same split in every dimension that contains it.
  }];
  let methods = [
    InterfaceMethod<"The factors of the operation and where they stand.",
                    "::cleave::ShardingRule", "getShardingRule", (ins)>,
    InterfaceMethod<[{
        Emits the local form of the operation. `plan` knows the axes of each
        factor, the local operands (already in the layout that the factors ask
        for) and the local result types; the default clones the operation with
        local types after masking padded reduction factors. Returns the local results in
        `plan`, or emits an error.
      }],
      "::mlir::LogicalResult", "planLocal", (ins "::cleave::LocalPlan &":$plan), "",
      "return ::cleave::planLocalByCloning($_op, plan);">,
  ];
}

def DifferentiableInterface : OpInterface<"DifferentiableInterface"> {
  let cppNamespace = "::cleave";
  let description = "The vector-Jacobian product.";
  let methods = [
    InterfaceMethod<[{
        Emits, for each operand in `wanted`, its cotangent, given the results'
        cotangents (null where zero); leaves null what has none. Forward
        values are read through `residual(value)`, which marks
        what the backward pass keeps.
      }],
      "::mlir::LogicalResult", "buildVJP",
      (ins "::cleave::VJPContext &":$context)>,
  ];
}

def CostInterface : OpInterface<"CostInterface"> {
  let cppNamespace = "::cleave";
  let description = "FLOPs and bytes of one execution.";
  let methods = [
    InterfaceMethod<"Floating-point operations; a multiply-add counts two.",
                    "int64_t", "getFlops", (ins)>,
    InterfaceMethod<"Bytes read and written if every operand and result moves once.",
                    "int64_t", "getBytesMoved", (ins), "",
                    "return ::cleave::bytesOfOperandsAndResults($_op);">,
  ];
}

def EvaluableInterface : OpInterface<"EvaluableInterface"> {
  let cppNamespace = "::cleave";
  let description = "Reference semantics: plain loops in double.";
  let methods = [
    InterfaceMethod<[{
        Computes the results' contents; their shapes and element types are
        already set. Slow and obviously right.
      }],
      "::mlir::LogicalResult", "evaluate",
      (ins "::llvm::ArrayRef<const ::cleave::Tensor *>":$operands,
           "::llvm::MutableArrayRef<::cleave::Tensor>":$results)>,
  ];
}

def LoweringInterface : OpInterface<"LoweringInterface"> {
  let cppNamespace = "::cleave";
  let description = "How an operation becomes a kernel.";
  let methods = [
    InterfaceMethod<"The kind of kernel that the operation belongs to.",
                    "::cleave::KernelClass", "getKernelClass", (ins)>,
    InterfaceMethod<[{
        Rewrites the operation into elementwise `arith` and `math`, `nn.broadcast`
        and `nn.reduce`, the vocabulary of generated kernels. Operations that are in it
        already, and library calls, return failure and emit nothing.
      }],
      "::llvm::FailureOr<::llvm::SmallVector<::mlir::Value>>", "decompose",
      (ins "::mlir::OpBuilder &":$builder), "", "return ::mlir::failure();">,
    InterfaceMethod<[{
        What becomes bf16 in mixed precision, and what stays f32. The default
        follows the kind of kernel.
      }],
      "::cleave::PrecisionRule", "getPrecision", (ins), "",
      "return ::cleave::PrecisionRule::of($_op.getKernelClass());">,
  ];
}

#endif
