// Classifies the operations of a function before it is cut: operations that
// belong to a pipeline stage, and operations that belong to no stage and are
// copied into every stage that reads them. Also finds the parameters that the
// operations of stages read.

#ifndef CLEAVE_LIB_STAGE_STAGEGRAPH_H
#define CLEAVE_LIB_STAGE_STAGEGRAPH_H

#include "cleave/Dialect/NN/IR/Batch.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::stage {

/// Returns the function for which stages are balanced: the first of
/// @loss_train, @loss and @forward (of an inference-only model) that the module
/// has; null if it has none of them.
mlir::func::FuncOp mainFunction(mlir::ModuleOp module);

/// Returns whether the argument is a parameter of the model, trained or frozen.
bool isParameter(mlir::BlockArgument argument);
/// Returns whether the argument is a trained parameter.
bool isTrained(mlir::BlockArgument argument);

/// Returns the values that an operation reads: its operands, and the outer
/// values that its regions capture.
llvm::SmallVector<mlir::Value> readsOf(mlir::Operation *op);

/// Returns the float values on a path from a trained parameter to the first
/// result, which is the loss.
llvm::DenseSet<mlir::Value> differentiableValues(mlir::func::FuncOp func);

/// Erases operations whose results have no readers.
void eraseDead(mlir::func::FuncOp func);

class StageGraph {
public:
  explicit StageGraph(mlir::func::FuncOp func);

  /// Operations that depend both on parameters and on inputs, in program order.
  /// All other operations belong to no stage.
  llvm::ArrayRef<mlir::Operation *> staged() const { return ordered; }
  bool isStaged(mlir::Operation *op) const { return indices.contains(op); }
  /// Returns the index in `staged()` of an operation that belongs to a stage.
  unsigned indexOf(mlir::Operation *op) const { return indices.lookup(op); }
  /// Returns the indices of the parameters that the operation reads, directly
  /// or through operations without a stage, ascending.
  llvm::ArrayRef<unsigned> parametersOf(mlir::Operation *op) const;

private:
  enum : unsigned char { Weights = 1, Inputs = 2, Both = 3 };
  unsigned char sourcesOf(mlir::Value value) const;
  llvm::ArrayRef<unsigned> weightsOf(mlir::Value value) const;

  llvm::SmallVector<mlir::Operation *> ordered;
  llvm::DenseMap<mlir::Operation *, unsigned> indices;
  llvm::DenseMap<mlir::Operation *, unsigned char> sources;
  /// For an operation that belongs to a stage, the parameters that it reads
  /// (see parametersOf). For any other operation, the parameters that its
  /// results depend on.
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<unsigned, 1>> weights;
  llvm::SmallVector<unsigned char> argumentSources;
  llvm::SmallVector<unsigned> arguments; // 0, 1, ...
};

} // namespace cleave::stage

#endif
