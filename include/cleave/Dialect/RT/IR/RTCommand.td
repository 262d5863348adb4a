// The base class of all commands.

#ifndef CLEAVE_DIALECT_RT_IR_RTCOMMAND_TD
#define CLEAVE_DIALECT_RT_IR_RTCOMMAND_TD

include "cleave/Dialect/RT/IR/RTDialect.td"
include "cleave/Dialect/RT/IR/RTInterfaces.td"
include "mlir/IR/BuiltinAttributeInterfaces.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def RT_FloatTensor : RankedTensorOf<[F64, F32, BF16]>;
def RT_IndexTensor : RankedTensorOf<[I64]>;
def RT_Scratch : RankedTensorOf<[I8]>;

class RT_Command<string mnemonic, list<string> methods, list<Trait> traits = []>
    : RT_Op<mnemonic, !listconcat([Pure, DeclareOpInterfaceMethods<RT_CommandOpInterface, methods>], traits)>;

#endif
