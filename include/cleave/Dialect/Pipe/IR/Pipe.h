// The pipe dialect: the stages of a pipeline.

#ifndef CLEAVE_DIALECT_PIPE_IR_PIPE_H
#define CLEAVE_DIALECT_PIPE_IR_PIPE_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include <optional>

#include "cleave/Dialect/Pipe/IR/PipeDialect.h.inc"

#define GET_ATTRDEF_CLASSES
#include "cleave/Dialect/Pipe/IR/PipeAttrs.h.inc"

#define GET_OP_CLASSES
#include "cleave/Dialect/Pipe/IR/PipeOps.h.inc"

namespace cleave::pipe {

/// Of an operation before the cut, or of a stage's module: an i64.
inline constexpr llvm::StringLiteral kStageAttr = "pipe.stage";
/// Of a stage's module: how many there are, an i64. Of a parameter that several
/// stages have: these, an array<i64>, ascending.
inline constexpr llvm::StringLiteral kStagesAttr = "pipe.stages";
/// Of an activation at a cut, argument or result: a trained parameter is among
/// what it is computed from, so that its cotangent is wanted. Unit.
inline constexpr llvm::StringLiteral kDifferentiableAttr =
    "pipe.differentiable";

/// Of a stage's module: the type of the loss and of all scalars that stages
/// add.
inline constexpr llvm::StringLiteral kScalarAttr = "pipe.scalar";

/// Of an argument or result: a SlotAttr.
inline constexpr llvm::StringLiteral kSlotAttr = "pipe.slot";
/// Of a part of @update: what the stages add up after it, in order, a list of
/// SumAttr.
inline constexpr llvm::StringLiteral kSumsAttr = "pipe.sums";

/// The text of the slot of a port with these attributes, which may be null;
/// empty where it has none.
llvm::StringRef slotOf(mlir::DictionaryAttr attrs);

/// Which stage a module is, of how many; nothing where it is none.
struct StageOf {
  int64_t stage = 0, stages = 1;
};
std::optional<StageOf> stageOf(mlir::ModuleOp module);

} // namespace cleave::pipe

#endif
