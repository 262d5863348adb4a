// Arguments and results of a stage's functions, by what they are to a schedule.

#ifndef CLEAVE_LIB_ACTIONS_PORTS_H
#define CLEAVE_LIB_ACTIONS_PORTS_H

#include "cleave/Dialect/NN/IR/Ports.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"

namespace cleave::actions {

using nn::isOneOf, nn::nameOf, nn::Role, nn::roleOf;

/// Kept from step to step, one for all microbatches: parameters, sums, scalars
/// of the step.
bool isPersistent(std::optional<Role> role);

/// The parts of @loss_grad in the order in which they run.
enum Part : unsigned { Forward = 0, Input = 1, Weight = 2 };

/// The part of every operation of a stage's @loss_grad, by reachability: what
/// leaves forward and what is saved; what the outgoing cotangents need; the
/// rest. With `weightsApart` false, Input is the rest. A tap asks for nothing.
llvm::DenseMap<mlir::Operation *, unsigned> partsOf(mlir::func::FuncOp func,
                                                    bool weightsApart);

/// The part that returns a result of a role; a tap is returned by the part that
/// computes its value.
unsigned partOfResult(std::optional<Role> role, bool weightsApart);

/// "F", "I", "W", or "B".
llvm::StringRef nameOfPart(unsigned part, bool weightsApart);

} // namespace cleave::actions

#endif
