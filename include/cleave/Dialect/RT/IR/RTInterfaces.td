// What the passes on command lists ask of a command.

#ifndef CLEAVE_DIALECT_RT_IR_RTINTERFACES_TD
#define CLEAVE_DIALECT_RT_IR_RTINTERFACES_TD

include "mlir/IR/OpBase.td"

def RT_CommandOpInterface : OpInterface<"CommandOpInterface"> {
  let cppNamespace = "::cleave::rt";
  let description = "What ordering and memory planning ask of a command.";
  let methods = [
    InterfaceMethod<[{
        Results that may, or must, take the memory of an operand. One that may
        does so where the operand is not read afterwards.
      }],
      "::llvm::SmallVector<::cleave::rt::Reuse>", "getReuse", (ins), "", "return {};">,
    InterfaceMethod<"The operand in whose memory the result is, if the command moves no data.",
      "::std::optional<::cleave::rt::Alias>", "getAlias", (ins "unsigned":$result), "",
      "return std::nullopt;">,
    InterfaceMethod<"The result that is scratch memory, if there is one.",
      "::mlir::Value", "getScratchResult", (ins), "", "return {};">,
    InterfaceMethod<"Floating-point operations of a library call; a multiply-add counts two.",
      "int64_t", "getFlops", (ins), "", "return 0;">,
  ];
}

#endif
