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

/// Attribute of an operation before the cut into stages: the stage that
/// computes the operation. Attribute of a stage's module: the index of the
/// stage. Both are of type i64.
inline constexpr llvm::StringLiteral kStageAttr = "pipe.stage";
/// Attribute of a module: the number of stages, an i64. On a parameter that
/// several stages have, the attribute lists these stages as an ascending
/// array<i64>.
inline constexpr llvm::StringLiteral kStagesAttr = "pipe.stages";
/// Attribute of a module that contains all stages: the pipeline schedule, a
/// ScheduleAttr.
inline constexpr llvm::StringLiteral kScheduleAttr = "pipe.schedule";
/// Unit attribute of an argument or result that is an activation sent from one
/// stage to the next. It says that the activation depends on a trained
/// parameter, so its cotangent must be sent back.
inline constexpr llvm::StringLiteral kDifferentiableAttr =
    "pipe.differentiable";

/// Attribute of a stage's module: the type of the loss and of all scalars that
/// are summed over stages.
inline constexpr llvm::StringLiteral kScalarAttr = "pipe.scalar";

/// Attribute of an argument or result whose value is kept from one action of
/// the schedule to later ones. Its value, a SlotAttr, names the action or
/// transfer that stores the value, and the last one that reads it.
inline constexpr llvm::StringLiteral kSlotAttr = "pipe.slot";
/// Attribute of one of the functions into which @update is divided: the sums
/// over pipeline stages that follow this function, in order, as a list of
/// SumAttr.
inline constexpr llvm::StringLiteral kSumsAttr = "pipe.sums";

/// Returns the text of the attribute `pipe.slot`, such as "F:W", of an argument
/// or result with the attributes `attrs` (which may be null). Empty if `attrs`
/// lacks it.
llvm::StringRef slotOf(mlir::DictionaryAttr attrs);

/// The index of a pipeline stage, and the number of all stages.
struct StageOf {
  int64_t stage = 0, stages = 1;
};
/// Returns which of the stages the module is; nullopt if the module is not a
/// pipeline stage.
std::optional<StageOf> stageOf(mlir::ModuleOp module);

} // namespace cleave::pipe

#endif
