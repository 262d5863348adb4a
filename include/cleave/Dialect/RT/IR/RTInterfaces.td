// The interfaces through which passes on command lists query a command.

#ifndef CLEAVE_DIALECT_RT_IR_RTINTERFACES_TD
#define CLEAVE_DIALECT_RT_IR_RTINTERFACES_TD

include "mlir/IR/OpBase.td"

def RT_CommandOpInterface : OpInterface<"CommandOpInterface"> {
  let cppNamespace = "::cleave::rt";
  let description = "The interface through which command ordering and memory planning query a command.";
  let methods = [
    InterfaceMethod<[{
        Returns which results may, or must, be stored in the memory of an operand. A
        result that may use an operand's memory does so if the operand is not read
        afterwards.
      }],
      "::llvm::SmallVector<::cleave::rt::Reuse>", "getReuse", (ins), "", "return {};">,
    InterfaceMethod<[{
        Returns which part of which operand's memory the result is, or nullopt if the result
        has memory of its own.
      }],
      "::std::optional<::cleave::rt::Alias>", "getAlias", (ins "unsigned":$result), "",
      "return std::nullopt;">,
    InterfaceMethod<"Returns the result that is scratch memory for intermediate values, or null if there is none.",
      "::mlir::Value", "getScratchResult", (ins), "", "return {};">,
    InterfaceMethod<"Returns whether all operands must have addresses that do not depend on the rank.",
      "bool", "needsFixedOperands", (ins), "", "return false;">,
    InterfaceMethod<[{
        Returns the number of floating-point operations of the library calls that the command
        executes; a multiply-add counts as two. Returns 0 if it executes none.
      }],
      "int64_t", "getFlops", (ins), "", "return 0;">,
  ];
}

def RT_LibraryCallOpInterface : OpInterface<"LibraryCallOpInterface"> {
  let cppNamespace = "::cleave::rt";
  let description = [{
    Implemented by commands that a library computes and that may need scratch memory.
    The implementations ask the runtime for its size (`cleave/workspace.h`);
    `registerLibraryCalls` in cleave/Memory/LibraryCalls.h registers them.
  }];
  let methods = [
    InterfaceMethod<[{
        Returns the bytes of scratch memory that the call needs on `device`; on a CPU, with
        `threads` threads per rank. If the library does not support the call, returns -1 and
        sets `error` to the reason.
      }],
      "int64_t", "getWorkspace",
      (ins "::cleave::program::Device":$device, "int":$threads, "::std::string &":$error)>,
  ];
}

#endif
