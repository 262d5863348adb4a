// Which experts the slots of a program choose.

#ifndef CLEAVE_LIB_AUTODIFF_CHOICES_H
#define CLEAVE_LIB_AUTODIFF_CHOICES_H

#include "cleave/Dialect/NN/IR/NN.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <string>

namespace cleave::autodiff {

/// One choice of experts, which several products may read.
struct Choice {
  /// The ids that products read: -1 where a slot was dropped.
  mlir::Value taken;
  /// The ids as the router chose them; `taken` where none can be dropped.
  mlir::Value chosen;
  /// How many; 0 slots per token: not known.
  int64_t experts = 0, slotsPerToken = 0;
  /// The most that an expert takes, and of how many slots; 0: all.
  int64_t capacity = 0, capacityOf = 0;
  /// The name of the first product, by which commands know where they are from.
  std::string product;
  /// Of the router: its matrix without ".weight", else the node that chooses.
  std::string name;
};

/// In the order of the program; names are unique.
llvm::SmallVector<Choice> findChoices(mlir::func::FuncOp func);

/// The tensor of the model with one number for each expert that is added to the
/// scores before the choice, and that no other float is computed from which a
/// result reads. Null if there is none.
mlir::BlockArgument biasOf(mlir::func::FuncOp func, const Choice &choice);

} // namespace cleave::autodiff

#endif
