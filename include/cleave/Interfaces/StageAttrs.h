// Discardable attributes of the programs of pipeline stages.

#ifndef CLEAVE_INTERFACES_STAGEATTRS_H
#define CLEAVE_INTERFACES_STAGEATTRS_H

#include "llvm/ADT/StringRef.h"

namespace cleave {

/// Attribute of functions, once all stages of a pipeline are in one module: the
/// stage's number.
inline constexpr llvm::StringLiteral kStageAttr = "pipe.stage";
/// Attribute of collectives in @loss_grad of a pipeline stage: the action of
/// the schedule that the collective belongs to.
inline constexpr llvm::StringLiteral kActionAttr = "pipe.action";
/// Attribute of arguments and results that are sent from stage to stage as
/// tiles: the sharding that the value has within each stage.
inline constexpr llvm::StringLiteral kInsideAttr = "pipe.inside";
/// The names of slot classes, which say how long a value is kept for later
/// functions of a stage: from UNSHARD to RESHARD, from REDUCE_GRAD to the
/// update, or between functions of the update (`@update` is split at sums over
/// stages).
inline constexpr llvm::StringLiteral kGatheredSlot = "unshard";
inline constexpr llvm::StringLiteral kReducedSlot = "reduced";
inline constexpr llvm::StringLiteral kUpdateSlot = "update";
/// The names of the functions that the schedule's actions UNSHARD and
/// REDUCE_GRAD call in a stage.
inline constexpr llvm::StringLiteral kUnshardFunc = "unshard";
inline constexpr llvm::StringLiteral kReduceGradFunc = "reduce_grad";
/// The names of the functions into which a stage's @loss_grad is split. They
/// are also the names of the schedule's actions that run them: F computes the
/// forward pass. B computes the backward pass, or I its gradients of
/// activations and W its gradients of parameters.
inline constexpr llvm::StringLiteral kForwardPart = "F";
inline constexpr llvm::StringLiteral kInputPart = "I";
inline constexpr llvm::StringLiteral kWeightPart = "W";
inline constexpr llvm::StringLiteral kBackwardPart = "B";
/// The name of the function of a stage that copies the inputs of a microbatch
/// into the memory of this microbatch.
inline constexpr llvm::StringLiteral kLoadPart = "load";

} // namespace cleave

#endif
