// Which dimension of a value holds the samples of a call: followed from the
// inputs through the sharding rules of the operations.

#ifndef CLEAVE_DIALECT_NN_TRANSFORMS_BATCHFLOW_H
#define CLEAVE_DIALECT_NN_TRANSFORMS_BATCHFLOW_H

#include "cleave/Interfaces/ShardingRule.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseSet.h"

#include <optional>

namespace cleave::nn {

/// Marks dimensions whose major part is the batch: of size `batch`, or a
/// product that begins with it ([batch * sequence]).
class BatchFlow {
public:
  BatchFlow(mlir::func::FuncOp func, int64_t batch)
      : func(func), batch(batch) {}

  /// From the dimensions that the arguments have by what is said of them (see
  /// `batchDimOf`), run; nothing where no argument has one.
  static std::optional<BatchFlow> ofArguments(mlir::func::FuncOp func);

  void seed(mlir::BlockArgument argument, int64_t dim);
  void run();

  /// The one dimension that is exactly the batch.
  std::optional<int64_t> dimOf(mlir::Value value) const;
  /// The same; in a batch of one sample, whose dimension is no factor of a
  /// reshape, also the first of size 1.
  std::optional<int64_t> dimOrUnit(mlir::Value value) const;
  /// The one dimension that begins with the batch: it alone, or a product.
  std::optional<int64_t> majorDimOf(mlir::Value value) const;
  /// Whether some dimension of it begins with the batch.
  bool hasDim(mlir::Value value) const;
  /// The number of samples.
  int64_t size() const { return batch; }
  /// Whether some value computed from `argument` is known to hold samples.
  bool meetsBatch(mlir::BlockArgument argument) const;
  /// Computed from inputs that hold samples.
  bool isBatched(mlir::Value value) const { return batched.count(value); }
  /// One sample's part of it depends on other samples.
  bool isMixed(mlir::Value value) const { return mixed.count(value); }
  /// A function of all samples of a call together.
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
