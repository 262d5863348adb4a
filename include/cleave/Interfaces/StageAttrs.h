// Discardable attributes of the programs of pipeline stages.

#ifndef CLEAVE_INTERFACES_STAGEATTRS_H
#define CLEAVE_INTERFACES_STAGEATTRS_H

#include "llvm/ADT/StringRef.h"

namespace cleave {

/// On functions, once the stages share a module: the stage, an integer.
inline constexpr llvm::StringLiteral kStageAttr = "pipe.stage";
/// On collectives of a stage's @loss_grad: the action that the collective
/// belongs to.
inline constexpr llvm::StringLiteral kActionAttr = "pipe.action";
/// On arguments and results that pass from stage to stage in tiles: the
/// sharding of the value inside the stages.
inline constexpr llvm::StringLiteral kInsideAttr = "pipe.inside";
/// The slot classes of values that are kept from UNSHARD to RESHARD, from
/// REDUCE_GRAD to the update, and from one part of the update to another.
inline constexpr llvm::StringLiteral kGatheredSlot = "unshard";
inline constexpr llvm::StringLiteral kReducedSlot = "reduced";
inline constexpr llvm::StringLiteral kUpdateSlot = "update";
/// The functions of a stage that UNSHARD and REDUCE_GRAD call.
inline constexpr llvm::StringLiteral kUnshardFunc = "unshard";
inline constexpr llvm::StringLiteral kReduceGradFunc = "reduce_grad";

} // namespace cleave

#endif
