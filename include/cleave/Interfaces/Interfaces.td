// The five interfaces of every operation: how it is sharded, what its derivative is,
// what it costs, what it computes, and how it becomes a kernel. All implementations
// are external models, in one folder of lib/Interfaces for each interface. So upstream
// arith and math operations have them as well, and the dialects do not depend on the
// phases that use the interfaces.

#ifndef CLEAVE_INTERFACES_INTERFACES_TD
#define CLEAVE_INTERFACES_INTERFACES_TD

include "mlir/IR/OpBase.td"

def ShardingRuleInterface : OpInterface<"ShardingRuleInterface"> {
  let cppNamespace = "::cleave";
  let description = [{
    The sharding rule of an operation, given by factors: each dimension of each operand
    and result is a product of factors, and splitting a factor splits every dimension
    that contains the factor.
  }];
  let methods = [
    InterfaceMethod<"Returns the factors of the operation and the dimensions that they make up.",
                    "::cleave::ShardingRule", "getShardingRule", (ins)>,
    InterfaceMethod<[{
        Emits the operations that each rank runs in place of the operation (its local
        form). `plan` has the mesh axes that split each factor, the local operands (already
        in the layout that the factors require) and the local result types. The default
        implementation masks padding along reduction factors and clones the operation with
        local types. The method returns the local results in `plan`, or emits an error.
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
        Emits the cotangent of each operand for which `context.wanted` is true, given the
        cotangents of the results (null stands for zero), and passes it to `context.set`.
        An operand whose cotangent is not set has the cotangent zero. Values of the forward
        pass are read through `context.residual`, which marks them as values to save.
      }],
      "::mlir::LogicalResult", "buildVJP",
      (ins "::cleave::VJPContext &":$context)>,
  ];
}

def CostInterface : OpInterface<"CostInterface"> {
  let cppNamespace = "::cleave";
  let description = "FLOPs and bytes of one execution.";
  let methods = [
    InterfaceMethod<"Returns the number of floating-point operations; a multiply-add counts as two.",
                    "int64_t", "getFlops", (ins)>,
    InterfaceMethod<"Returns the bytes read and written if every operand and result moves once.",
                    "int64_t", "getBytesMoved", (ins), "",
                    "return ::cleave::bytesOfOperandsAndResults($_op);">,
  ];
}

def EvaluableInterface : OpInterface<"EvaluableInterface"> {
  let cppNamespace = "::cleave";
  let description = "Reference semantics: plain loops in double.";
  let methods = [
    InterfaceMethod<[{
        Computes the contents of the results; the shapes and element types of the results
        are already set. Implementations are slow and simple.
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
    InterfaceMethod<"Returns the kind of kernel that the operation belongs to.",
                    "::cleave::KernelClass", "getKernelClass", (ins)>,
    InterfaceMethod<[{
        Rewrites the operation into those that generated kernels consist of: elementwise
        operations of `arith` and `math`, `nn.broadcast` and `nn.reduce`. Returns failure
        and emits nothing if the operation is already one of them, or is a library call.
      }],
      "::llvm::FailureOr<::llvm::SmallVector<::mlir::Value>>", "decompose",
      (ins "::mlir::OpBuilder &":$builder), "", "return ::mlir::failure();">,
    InterfaceMethod<[{
        Returns which operands and results become bf16 in mixed precision, and which stay
        f32. The default follows from the kind of kernel.
      }],
      "::cleave::PrecisionRule", "getPrecision", (ins), "",
      "return ::cleave::PrecisionRule::of($_op.getKernelClass());">,
  ];
}

#endif
