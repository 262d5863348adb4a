// Classifies arguments and results of a stage's functions by their role in a
// schedule.

#ifndef CLEAVE_LIB_ACTIONS_PORTS_H
#define CLEAVE_LIB_ACTIONS_PORTS_H

#include "cleave/Dialect/NN/IR/Ports.h"
#include "cleave/Dialect/Pipe/IR/Pipe.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"

namespace cleave::actions {

using nn::isOneOf, nn::nameOf, nn::Role, nn::roleOf;

/// Returns whether values of a role are live across steps or shared by all
/// microbatches of a step. Examples are parameters, gradients (which are summed
/// over the microbatches), and scalars of the step.
bool isPersistent(std::optional<Role> role);

/// The parts of @loss_grad in the order in which they run.
enum Part : unsigned { Forward = 0, Input = 1, Weight = 2 };

/// Assigns every operation of a stage's @loss_grad to a part, by reachability:
/// Forward computes the activations that leave the stage and the saved values,
/// Input computes the outgoing cotangents, and Weight all other results. If
/// `weightsApart` is false, Input also computes all other results. Taps
/// (results that a check has added) do not affect the assignment.
llvm::DenseMap<mlir::Operation *, unsigned> partsOf(mlir::func::FuncOp func,
                                                    bool weightsApart);

/// Returns the part that returns results of a role. A tap (a result that a
/// check has added) is returned by the part that computes it.
unsigned partOfResult(std::optional<Role> role, bool weightsApart);

/// "F", "I", "W", or "B".
llvm::StringRef nameOfPart(unsigned part, bool weightsApart);

pipe::SlotAttr slotAttr(mlir::MLIRContext *context, const llvm::Twine &text);

/// Returns the attributes of a value that one action saves for another action.
mlir::DictionaryAttr residualAttrs(mlir::MLIRContext *context,
                                   const llvm::Twine &name,
                                   llvm::StringRef slot);

} // namespace cleave::actions

#endif
