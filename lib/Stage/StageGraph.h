// Classifies the operations of a function for cutting: which belong to a
// pipeline stage, which belong to none and are copied into every stage that
// reads them, and which parameters the staged operations read.

#ifndef CLEAVE_LIB_STAGE_STAGEGRAPH_H
#define CLEAVE_LIB_STAGE_STAGEGRAPH_H

#include "cleave/Dialect/NN/IR/Batch.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::stage {

/// The function that stages are balanced for: @loss_train, else @loss, else
/// @forward (of an inference-only model); null if the module has none of them.
mlir::func::FuncOp mainFunction(mlir::ModuleOp module);

/// Whether the argument is a parameter of the model, trained or frozen.
bool isParameter(mlir::BlockArgument argument);
/// Whether the argument is a trained parameter.
bool isTrained(mlir::BlockArgument argument);

/// The values that an operation reads: its operands, and the outer values that
/// its regions capture.
llvm::SmallVector<mlir::Value> readsOf(mlir::Operation *op);

/// Float values on a path from a trained parameter to the first result, the
/// loss.
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
  /// The index of a staged operation in `staged()`.
  unsigned indexOf(mlir::Operation *op) const { return indices.lookup(op); }
  /// Indices of the parameters that the operation reads, directly or through
  /// operations without a stage, ascending.
  llvm::ArrayRef<unsigned> parametersOf(mlir::Operation *op) const;

private:
  enum : unsigned char { Weights = 1, Inputs = 2, Both = 3 };
  unsigned char sourcesOf(mlir::Value value) const;
  llvm::ArrayRef<unsigned> weightsOf(mlir::Value value) const;

  llvm::SmallVector<mlir::Operation *> ordered;
  llvm::DenseMap<mlir::Operation *, unsigned> indices;
  llvm::DenseMap<mlir::Operation *, unsigned char> sources;
  /// For a staged operation, the parameters that it reads; for others, the
  /// parameters that their results depend on.
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<unsigned, 1>> weights;
  llvm::SmallVector<unsigned char> argumentSources;
  llvm::SmallVector<unsigned> arguments; // 0, 1, ...
};

} // namespace cleave::stage

#endif
