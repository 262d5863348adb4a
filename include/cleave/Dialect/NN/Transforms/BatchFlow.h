// For each value of a function, finds the dimension that enumerates the samples
// of the batch, by propagation from the inputs through the sharding rules of
// the operations.

#ifndef CLEAVE_DIALECT_NN_TRANSFORMS_BATCHFLOW_H
#define CLEAVE_DIALECT_NN_TRANSFORMS_BATCHFLOW_H

#include "cleave/Interfaces/ShardingRule.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseSet.h"

#include <optional>

namespace cleave::nn {

/// Marks the dimensions that enumerate samples: the batch dimension itself, of
/// size `batch`, and merged dimensions whose outermost factor is the batch,
/// such as [batch * sequence].
class BatchFlow {
public:
  BatchFlow(mlir::func::FuncOp func, int64_t batch)
      : func(func), batch(batch) {}

  /// Runs the analysis from the batch dimensions that attributes of the
  /// arguments give (see `batchDimOf`). Returns nullopt if no argument has a
  /// batch dimension.
  static std::optional<BatchFlow> ofArguments(mlir::func::FuncOp func);

  void seed(mlir::BlockArgument argument, int64_t dim);
  void run();

  /// Returns the dimension of `value` that is exactly the batch, or nullopt if
  /// there is none or more than one.
  std::optional<int64_t> dimOf(mlir::Value value) const;
  /// Like `dimOf`, but for a batch of one sample also returns the first
  /// dimension of size 1, since reshapes do not connect dimensions of size 1.
  std::optional<int64_t> dimOrUnit(mlir::Value value) const;
  /// Returns the dimension of `value` that is the batch, or else the dimension
  /// whose outermost factor is the batch, such as [batch * sequence]. Returns
  /// nullopt if there is none or more than one.
  std::optional<int64_t> majorDimOf(mlir::Value value) const;
  /// Returns whether the value has a dimension that is the batch, or whose
  /// outermost factor is the batch.
  bool hasDim(mlir::Value value) const;
  /// The number of samples.
  int64_t size() const { return batch; }
  /// Returns whether some value that is computed from `argument` has a
  /// dimension that is the batch, or whose outermost factor is the batch.
  bool meetsBatch(mlir::BlockArgument argument) const;
  /// Returns whether the value is, or depends on, an argument with a batch
  /// dimension.
  bool isBatched(mlir::Value value) const { return batched.count(value); }
  /// Returns whether the value's elements for one sample also depend on other
  /// samples of the batch.
  bool isMixed(mlir::Value value) const { return mixed.count(value); }
  /// Returns whether the value depends on samples but cannot be computed for
  /// each sample alone, because it has no batch dimension or mixes samples. It
  /// is then correct only for all samples of one call of the function together.
  bool isOfWholeCall(mlir::Value value) const {
    return isBatched(value) && (!dimOrUnit(value) || isMixed(value));
  }

private:
  bool fromInputs(mlir::Value value);
  void set(mlir::Value value, int64_t dim);
  bool isMarked(mlir::Value value, int64_t dim) const;
  void visit(mlir::Operation *op);
  void findMixing(mlir::Operation *op);

  mlir::func::FuncOp func;
  int64_t batch;
  bool changed = false;
  llvm::DenseSet<mlir::Operation *> computed;
  llvm::DenseMap<mlir::Value, llvm::SmallVector<bool>> marks;
  llvm::DenseSet<mlir::Value> batched, mixed;
};

} // namespace cleave::nn

#endif
