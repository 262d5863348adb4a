// Classifies arguments and results of a stage's functions by their role in a
// pipeline schedule.

#ifndef CLEAVE_LIB_ACTIONS_PORTS_H
#define CLEAVE_LIB_ACTIONS_PORTS_H

#include "cleave/Dialect/NN/IR/Ports.h"
#include "cleave/Dialect/Pipe/IR/Pipe.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"

namespace cleave::actions {

using nn::isOneOf, nn::nameOf, nn::Role, nn::roleOf;

/// Returns whether values of a role are live across steps or shared by all
/// microbatches of a step. All other values exist once for each microbatch in
/// flight. Examples are parameters, gradients (which are summed over the
/// microbatches), and scalars of the step.
bool isPersistent(std::optional<Role> role);

/// The parts into which @loss_grad of a stage is cut, in the order in which
/// they run for a microbatch: the forward pass, the gradient of the stage's
/// input, and the gradients of the weights.
enum Part : unsigned { Forward = 0, Input = 1, Weight = 2 };

/// Assigns every operation of a stage's @loss_grad to a part, by reachability:
/// Forward computes the activations that leave the stage and the saved values,
/// Input computes the outgoing cotangents, and Weight all other results. If
/// `weightsApart` is false, Input also computes all other results. Taps
/// (results that `cleave check --bisect` adds, in order to compare every value)
/// do not affect the assignment.
llvm::DenseMap<mlir::Operation *, unsigned> partsOf(mlir::func::FuncOp func,
                                                    bool weightsApart);

/// Returns which part of @loss_grad returns the results with this role:
/// gradients are returned by Weight, cotangents by Input, and all other results
/// by Forward. This does not apply to taps (results that `cleave check
/// --bisect` adds), because a tap is returned by the part that computes it.
unsigned partOfResult(std::optional<Role> role, bool weightsApart);

/// Returns the name of the schedule's action that runs a part of @loss_grad:
/// "F", "I", "W", or "B" (I and W in one action).
llvm::StringRef nameOfPart(unsigned part, bool weightsApart);

pipe::SlotAttr slotAttr(mlir::MLIRContext *context, const llvm::Twine &text);

/// Returns the attributes of a value that one action saves for another action.
mlir::DictionaryAttr residualAttrs(mlir::MLIRContext *context,
                                   const llvm::Twine &name,
                                   llvm::StringRef slot);

} // namespace cleave::actions

#endif
