// Finds where the routers of a program choose experts.

#ifndef CLEAVE_LIB_AUTODIFF_CHOICES_H
#define CLEAVE_LIB_AUTODIFF_CHOICES_H

#include "cleave/Dialect/NN/IR/NN.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <string>

namespace cleave::autodiff {

/// A choice of experts: the result of a router, as ids of the experts that each
/// token chose. Several grouped products (grouped GEMM, one matrix per expert)
/// may read the same choice.
struct Choice {
  /// The expert ids that the grouped products read, one for each token-expert
  /// pair. The id of a dropped pair is -1.
  mlir::Value taken;
  /// The ids as the router chose them; the same value as `taken` if no pair can
  /// be dropped.
  mlir::Value chosen;
  /// The number of experts, and the number of experts that a token chooses (0
  /// if unknown).
  int64_t experts = 0, slotsPerToken = 0;
  /// The capacity of an expert: one sample (or one microbatch) has `capacityOf`
  /// token-expert pairs in total, and each expert accepts at most `capacity` of
  /// them. 0 means no limit.
  int64_t capacity = 0, capacityOf = 0;
  /// The name of the first grouped product that reads the choice. Messages of
  /// tools use it to say where the choice comes from.
  std::string product;
  /// The router's name: the name of its matrix without ".weight" or, without a
  /// matrix, the name of the ONNX node that chooses.
  std::string name;
};

/// Returns all choices of experts in the function, in program order. Their
/// names are unique.
llvm::SmallVector<Choice> findChoices(mlir::func::FuncOp func);

/// Returns the bias that the model adds to the scores of a router before the
/// choice: an argument with one number per expert, which affects results only
/// because it changes the choice. Returns null if there is no such bias.
mlir::BlockArgument biasOf(mlir::func::FuncOp func, const Choice &choice);

} // namespace cleave::autodiff

#endif
