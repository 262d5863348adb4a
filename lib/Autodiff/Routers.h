// Finds the routers of a model, which choose the experts of grouped products.

#ifndef CLEAVE_LIB_AUTODIFF_ROUTERS_H
#define CLEAVE_LIB_AUTODIFF_ROUTERS_H

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Support/ValueUtils.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::autodiff {

struct Router {
  /// The ids of the chosen experts: [tokens..., slots] with `slots` experts per
  /// token, or [tokens...] if each token chooses one expert.
  mlir::Value ids;
  /// The router's logits, [tokens..., experts], before softmax or sigmoid. A
  /// bias that only affects the choice of experts is not included.
  mlir::Value logits;
  /// The model's softmax or sigmoid of the logits, [tokens..., experts]; null
  /// if the experts are chosen by comparing logits.
  mlir::Value scores;
  int64_t experts = 0, slots = 1;

  /// Returns the shape [tokens...].
  llvm::ArrayRef<int64_t> tokens() const {
    return typeOf(logits).getShape().drop_back();
  }
  bool hasSlots() const {
    return typeOf(ids).getRank() > int64_t(tokens().size());
  }
};

/// Returns each router once, in program order. Fails, with an error, if a
/// choice of experts cannot be traced to scores.
mlir::FailureOr<llvm::SmallVector<Router>> findRouters(mlir::func::FuncOp func);

} // namespace cleave::autodiff

#endif
