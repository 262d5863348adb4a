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
    Each letter of the equation names one dimension. A letter in both operands
    and in the result is a batch dimension; in both operands only, contracted;
    in one operand and the result, free. So transposes and the splits and merges
    of heads cost nothing: they are spelled in the letters. Accumulation is in
    the element type, f32 for bf16, of which the result is bf16, rounded once, or f32.

    ```mlir
    %q = nn.einsum "bsh,hnd->bsnd" %x, %w : tensor<2x5x6xf32>, tensor<6x3x2xf32> -> tensor<2x5x3x2xf32>
    ```

    Constraints:
    - (E1) The equation reads `letters,letters->letters`, letters a-z and A-Z,
      each at most once per operand and result.
    - (E2) Letter counts are the operands' ranks, and equal letters have equal sizes.
    - (E3) Each letter of the result stands in an operand; a letter of only one
      operand stands in the result.
    - (E4) The result has the operands' element type; that of a product of bf16 may be f32.
  }];
  let arguments = (ins StrAttr:$equation, NN_FloatTensor:$lhs, NN_FloatTensor:$rhs);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$equation $lhs `,` $rhs attr-dict `:` type($lhs) `,` type($rhs) `->` type($result)";
  let extraClassDeclaration = [{
    /// The three label strings of the equation.
    struct Labels { std::string lhs, rhs, result; };
    Labels getLabels() { return parseLabels(getEquation()); }
    /// Splits "ab,bc->ac"; empty strings where it is malformed.
    static Labels parseLabels(::llvm::StringRef equation);
  }];
}

def NN_ReduceOp : NN_Op<"reduce", [Pure, InferTypeOpAdaptor]> {
  let summary = "Combines the elements along dimensions, which disappear";
  let description = [{
    ```mlir
    %1 = nn.reduce sum %0 dims = [1] : tensor<4x6xf32> -> tensor<4xf32>
    ```

    Sums of integers wrap to the width of the element, as `arith.addi` does: that
    of i1 is the parity, whether an odd number of elements is true. To ask for
    any, take the maximum; for all, the minimum.

    Constraints:
    - (R1) `dims` are dimensions of the input, strictly increasing.
  }];
  let arguments = (ins NN_CombinerAttr:$combiner, NN_Tensor:$input, DenseI64ArrayAttr:$dims);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$combiner $input `dims` `=` $dims attr-dict `:` type($input) `->` type($result)";
  let hasFolder = 1;
}

def NN_ArgMaxOp : NN_Op<"argmax", [Pure]> {
  let summary = "Index of the largest element along a dimension, the first of equals";
  let description = [{
    ```mlir
    %1 = nn.argmax %0 dim = 1 : tensor<4x6xf32> -> tensor<4xi64>
    ```

    Constraints:
    - (A1) `dim` is a dimension of the input, and the result has the others.
  }];
  let arguments = (ins NN_Tensor:$input, ConfinedAttr<I64Attr, [IntNonNegative]>:$dim);
  let results = (outs NN_IndexTensor:$result);
  let assemblyFormat = "$input `dim` `=` $dim attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
}

#endif
