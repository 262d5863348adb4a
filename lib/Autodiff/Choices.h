// Which experts the routers of a program choose.

#ifndef CLEAVE_LIB_AUTODIFF_CHOICES_H
#define CLEAVE_LIB_AUTODIFF_CHOICES_H

#include "cleave/Dialect/NN/IR/NN.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <string>

namespace cleave::autodiff {

/// One choice of experts; several grouped products may read it.
struct Choice {
  /// The expert ids that the products read. The id is -1 in a slot that was
  /// dropped.
  mlir::Value taken;
  /// The ids as the router chose them; equal to `taken` if no slot can be
  /// dropped.
  mlir::Value chosen;
  /// Sizes; slotsPerToken is 0 if unknown.
  int64_t experts = 0, slotsPerToken = 0;
  /// The capacity of an expert: it accepts at most `capacity` of every
  /// `capacityOf` slots. 0 means no limit.
  int64_t capacity = 0, capacityOf = 0;
  /// The name of the first grouped product that reads the choice. Messages of
  /// tools use it to say where the choice comes from.
  std::string product;
  /// The router's name: the name of its matrix without ".weight", or else the
  /// node that chooses.
  std::string name;
};

/// Returns choices in program order; their names are unique.
llvm::SmallVector<Choice> findChoices(mlir::func::FuncOp func);

/// Returns the model's bias of a router: a tensor with one number per expert
/// that is added to the scores before the choice and affects results through
/// the choice alone. Null if there is none.
mlir::BlockArgument biasOf(mlir::func::FuncOp func, const Choice &choice);

} // namespace cleave::autodiff

#endif
