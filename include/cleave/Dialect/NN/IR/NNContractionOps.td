// Contractions and reductions.

#ifndef CLEAVE_DIALECT_NN_IR_NNCONTRACTIONOPS_TD
#define CLEAVE_DIALECT_NN_IR_NNCONTRACTIONOPS_TD

include "cleave/Dialect/NN/IR/NNDialect.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def NN_CombinerAttr : I32EnumAttr<"Combiner", "how partial results are combined", [
    I32EnumAttrCase<"Sum", 0, "sum">, I32EnumAttrCase<"Max", 1, "max">,
    I32EnumAttrCase<"Min", 2, "min">]> {
  let cppNamespace = "::cleave::nn";
}

def NN_EinsumOp : NN_Op<"einsum", [Pure, InferTypeOpAdaptorWithIsCompatible]> {
  let summary = "Multiplies two tensors and sums over labels absent from the result";
  let description = [{
    Each letter of the equation names one dimension. A letter in both operands and
    in the result is a batch dimension; a letter in both operands only is
    contracted; a letter in one operand and the result is free. So the equation also
    expresses transposes, and the splitting and merging of attention heads, at no
    cost. Sums of products are accumulated in the element type, or in f32 for bf16
    operands. The result of bf16 operands is f32, or bf16 after a single rounding.

    ```mlir
    %q = nn.einsum "bsh,hnd->bsnd" %x, %w : tensor<2x5x6xf32>, tensor<6x3x2xf32> -> tensor<2x5x3x2xf32>
    ```

    Constraints (the verifier's code cites them by these labels):
    - (E1) The equation reads `letters,letters->letters`, letters a-z and A-Z,
      each at most once per operand and result.
    - (E2) Each operand has as many letters as dimensions, and dimensions with the
      same letter have the same size.
    - (E3) Each letter of the result occurs in an operand; a letter that occurs in only
      one operand occurs in the result.
    - (E4) The result has the operands' element type; for bf16 operands it may also be f32.
  }];
  let arguments = (ins StrAttr:$equation, NN_FloatTensor:$lhs, NN_FloatTensor:$rhs);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$equation $lhs `,` $rhs attr-dict `:` type($lhs) `,` type($rhs) `->` type($result)";
  let extraClassDeclaration = [{
    /// The three label strings of the equation.
    struct Labels { std::string lhs, rhs, result; };
    Labels getLabels() { return parseLabels(getEquation()); }
    /// Splits an equation like "ab,bc->ac"; returns empty strings if the equation is malformed.
    static Labels parseLabels(::llvm::StringRef equation);
  }];
}

def NN_ReduceOp : NN_Op<"reduce", [Pure, InferTypeOpAdaptor]> {
  let summary = "Reduces a tensor along dimensions, which the result no longer has";
  let description = [{
    ```mlir
    %1 = nn.reduce sum %0 dims = [1] : tensor<4x6xf32> -> tensor<4xf32>
    ```

    Sums of integers wrap to the width of the element, as in `arith.addi`. So the sum
    of i1 elements is their parity, true if an odd number of elements is true. The
    maximum of i1 elements is their logical OR, the minimum their logical AND.

    Constraints (the verifier's code cites them by these labels):
    - (R1) `dims` are dimensions of the input, strictly increasing.
  }];
  let arguments = (ins NN_CombinerAttr:$combiner, NN_Tensor:$input, DenseI64ArrayAttr:$dims);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$combiner $input `dims` `=` $dims attr-dict `:` type($input) `->` type($result)";
  let hasFolder = 1;
}

def NN_ArgMaxOp : NN_Op<"argmax", [Pure]> {
  let summary = "Index of the largest element along a dimension, the lowest index if several are equal";
  let description = [{
    ```mlir
    %1 = nn.argmax %0 dim = 1 : tensor<4x6xf32> -> tensor<4xi64>
    ```

    Constraints (the verifier's code cites them by these labels):
    - (A1) `dim` is a dimension of the input, and the result has the other dimensions.
  }];
  let arguments = (ins NN_Tensor:$input, ConfinedAttr<I64Attr, [IntNonNegative]>:$dim);
  let results = (outs NN_IndexTensor:$result);
  let assemblyFormat = "$input `dim` `=` $dim attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
}

#endif
