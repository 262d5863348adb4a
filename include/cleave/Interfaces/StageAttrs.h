// Discardable attributes of the programs of pipeline stages.

#ifndef CLEAVE_INTERFACES_STAGEATTRS_H
#define CLEAVE_INTERFACES_STAGEATTRS_H

#include "llvm/ADT/StringRef.h"

namespace cleave {

/// Attribute of functions, once all stages of a pipeline are in one module: the
/// stage's number.
inline constexpr llvm::StringLiteral kStageAttr = "pipe.stage";
/// Attribute of collectives in @loss_grad of a pipeline stage: the schedule's
/// action (such as F, the forward pass) that runs the collective.
inline constexpr llvm::StringLiteral kActionAttr = "pipe.action";
/// Attribute of arguments and results that are sent from stage to stage as
/// tiles: the sharding that the value has within each stage.
inline constexpr llvm::StringLiteral kInsideAttr = "pipe.inside";
/// Values of the attribute `pipe.slot`, which says how long a stage keeps a
/// value for its later functions. "unshard" is for parameters gathered from
/// UNSHARD to RESHARD, "reduced" for gradients from REDUCE_GRAD to the update,
/// and "update" for values that one function of the update passes to a later
/// one (`@update` is split into functions at its sums over stages).
inline constexpr llvm::StringLiteral kGatheredSlot = "unshard";
inline constexpr llvm::StringLiteral kReducedSlot = "reduced";
inline constexpr llvm::StringLiteral kUpdateSlot = "update";
/// The names of the functions that the schedule's actions UNSHARD and
/// REDUCE_GRAD call in a stage.
inline constexpr llvm::StringLiteral kUnshardFunc = "unshard";
inline constexpr llvm::StringLiteral kReduceGradFunc = "reduce_grad";
/// The names of the functions into which a stage's @loss_grad is split. They
/// are also the names of the schedule's actions that run them. F computes the
/// forward pass, and B the backward pass. Some schedules divide B into I, the
/// gradients of activations, and W, the gradients of parameters.
inline constexpr llvm::StringLiteral kForwardPart = "F";
inline constexpr llvm::StringLiteral kInputPart = "I";
inline constexpr llvm::StringLiteral kWeightPart = "W";
inline constexpr llvm::StringLiteral kBackwardPart = "B";
/// The name of the function of a stage that copies the inputs of a microbatch
/// into the memory of this microbatch.
inline constexpr llvm::StringLiteral kLoadPart = "load";

} // namespace cleave

#endif
