// The interface through which passes on command lists query a command.

#ifndef CLEAVE_DIALECT_RT_IR_RTINTERFACES_TD
#define CLEAVE_DIALECT_RT_IR_RTINTERFACES_TD

include "mlir/IR/OpBase.td"

def RT_CommandOpInterface : OpInterface<"CommandOpInterface"> {
  let cppNamespace = "::cleave::rt";
  let description = "The interface through which command ordering and memory planning query a command.";
  let methods = [
    InterfaceMethod<[{
        Returns the results that may, or must, take the memory of an operand. A result
        that may take an operand's memory does so if the operand is not read afterwards.
      }],
      "::llvm::SmallVector<::cleave::rt::Reuse>", "getReuse", (ins), "", "return {};">,
    InterfaceMethod<"Returns the operand that contains the result in its memory, if the command moves no data.",
      "::std::optional<::cleave::rt::Alias>", "getAlias", (ins "unsigned":$result), "",
      "return std::nullopt;">,
    InterfaceMethod<"Returns the result that is scratch memory, if there is one.",
      "::mlir::Value", "getScratchResult", (ins), "", "return {};">,
    InterfaceMethod<"Returns whether the operands' addresses must be the same on all ranks.",
      "bool", "needsFixedOperands", (ins), "", "return false;">,
    InterfaceMethod<"Returns the number of floating-point operations of a library call; a multiply-add counts as two.",
      "int64_t", "getFlops", (ins), "", "return 0;">,
  ];
}

def RT_LibraryCallOpInterface : OpInterface<"LibraryCallOpInterface"> {
  let cppNamespace = "::cleave::rt";
  let description = [{
    Implemented by commands that a library computes and that may need scratch memory.
    The implementations ask the runtime (`cleave/workspace.h`); see `registerLibraryCalls`.
  }];
  let methods = [
    InterfaceMethod<[{
        Returns the bytes of scratch memory on a device, with `threads` threads per rank on
        CPUs. Returns -1 if the library does not support the call, with the reason in `error`.
      }],
      "int64_t", "getWorkspace",
      (ins "::cleave::program::Device":$device, "int":$threads, "::std::string &":$error)>,
  ];
}

#endif
