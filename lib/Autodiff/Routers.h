// The routers of a model: what chooses the matrices of grouped products.

#ifndef CLEAVE_LIB_AUTODIFF_ROUTERS_H
#define CLEAVE_LIB_AUTODIFF_ROUTERS_H

#include "cleave/Dialect/NN/IR/NN.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::autodiff {

struct Router {
  /// The chosen experts, [tokens..., slots], or [tokens...] of one each.
  mlir::Value ids;
  /// [tokens..., experts], before softmax or sigmoid, without a bias that moves
  /// choices alone.
  mlir::Value logits;
  /// What the file makes of them, [tokens..., experts]; null: the choice is
  /// among logits.
  mlir::Value scores;
  int64_t experts = 0, slots = 1;

  /// [tokens...].
  llvm::ArrayRef<int64_t> tokens() const {
    return mlir::cast<mlir::RankedTensorType>(logits.getType())
        .getShape()
        .drop_back();
  }
  bool hasSlots() const {
    return mlir::cast<mlir::RankedTensorType>(ids.getType()).getRank() >
           int64_t(tokens().size());
  }
};

/// In the order of the program, each once. Fails, with an error, where what
/// chooses experts cannot be followed to scores.
mlir::FailureOr<llvm::SmallVector<Router>> findRouters(mlir::func::FuncOp func);

} // namespace cleave::autodiff

#endif
