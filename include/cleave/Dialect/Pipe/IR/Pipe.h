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

/// Attribute of an operation before the cut into stages, and of a stage's
/// module: the number of the stage, an i64.
inline constexpr llvm::StringLiteral kStageAttr = "pipe.stage";
/// Attribute of a stage's module: the number of stages, an i64. On a parameter
/// that several stages have, the attribute lists these stages as an ascending
/// array<i64>.
inline constexpr llvm::StringLiteral kStagesAttr = "pipe.stages";
/// Attribute of a module of all stages: a ScheduleAttr.
inline constexpr llvm::StringLiteral kScheduleAttr = "pipe.schedule";
/// Unit attribute of an argument or result that is an activation sent between
/// stages. It says that the activation depends on a trained parameter, so that
/// its cotangent is needed.
inline constexpr llvm::StringLiteral kDifferentiableAttr =
    "pipe.differentiable";

/// Attribute of a stage's module: the type of the loss and of all scalars that
/// are summed over stages.
inline constexpr llvm::StringLiteral kScalarAttr = "pipe.scalar";

/// Attribute of an argument or result whose value is kept from one action of
/// the schedule to later ones. Its value, a SlotAttr, names the action or
/// transfer that stores the value, and the last one that reads it.
inline constexpr llvm::StringLiteral kSlotAttr = "pipe.slot";
/// Attribute of a part of @update: the sums over pipeline stages that take
/// place after this part, in order, as a list of SumAttr.
inline constexpr llvm::StringLiteral kSumsAttr = "pipe.sums";

/// Returns the text of `pipe.slot` among the attributes `attrs` (which may be
/// null) of an argument or result; empty if it is not among them.
llvm::StringRef slotOf(mlir::DictionaryAttr attrs);

/// Returns the index of the stage that the module contains and the number of
/// all stages; nullopt if the module is not a pipeline stage.
struct StageOf {
  int64_t stage = 0, stages = 1;
};
std::optional<StageOf> stageOf(mlir::ModuleOp module);

} // namespace cleave::pipe

#endif
