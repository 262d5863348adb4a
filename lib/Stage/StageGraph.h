// A function as the cutter sees it: which operations belong to a stage, which
// are computed wherever they are read, and what the former read of parameters.

#ifndef CLEAVE_LIB_STAGE_STAGEGRAPH_H
#define CLEAVE_LIB_STAGE_STAGEGRAPH_H

#include "cleave/Dialect/NN/IR/Batch.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::stage {

/// The function that stages are balanced for: @loss_train, else @loss, else (of
/// a model that only infers) @forward; null where the module has none of them.
mlir::func::FuncOp mainFunction(mlir::ModuleOp module);

/// Whether the argument is a parameter of the model, trained or frozen.
bool isParameter(mlir::BlockArgument argument);
/// Whether it is trained.
bool isTrained(mlir::BlockArgument argument);

/// What an operation reads: its operands, and what its regions read from around
/// it.
llvm::SmallVector<mlir::Value> readsOf(mlir::Operation *op);

/// Floats on a way from a trained parameter to the first result: the loss.
llvm::DenseSet<mlir::Value> differentiableValues(mlir::func::FuncOp func);

/// Erases what nothing reads.
void eraseDead(mlir::func::FuncOp func);

class StageGraph {
public:
  explicit StageGraph(mlir::func::FuncOp func);

  /// Operations that read both what parameters make and what inputs make, in
  /// program order. All others belong to no stage.
  llvm::ArrayRef<mlir::Operation *> staged() const { return ordered; }
  bool isStaged(mlir::Operation *op) const { return indices.contains(op); }
  /// The place of a staged operation in `staged()`.
  unsigned indexOf(mlir::Operation *op) const { return indices.lookup(op); }
  /// Parameters that the operation reads, itself or through operations of no
  /// stage, in the order of the arguments.
  llvm::ArrayRef<unsigned> parametersOf(mlir::Operation *op) const;

private:
  enum : unsigned char { Weights = 1, Inputs = 2, Both = 3 };
  unsigned char sourcesOf(mlir::Value value) const;
  llvm::ArrayRef<unsigned> weightsOf(mlir::Value value) const;

  llvm::SmallVector<mlir::Operation *> ordered;
  llvm::DenseMap<mlir::Operation *, unsigned> indices;
  llvm::DenseMap<mlir::Operation *, unsigned char> sources;
  /// Of a staged operation what it reads; of others what they are made of.
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<unsigned, 1>> weights;
  llvm::SmallVector<unsigned char> argumentSources;
  llvm::SmallVector<unsigned> arguments; // 0, 1, ...
};

} // namespace cleave::stage

#endif
