// Dimension classes: sets of dimensions (of different values) that must be
// sharded alike.
//
// Two dimensions are in one class if both consist of the same single factor of
// some operation: "bsh,hd->bsd" connects the h of both operands, and connects
// b, s, d with the result's. Classes do not depend on names or layers.

#ifndef CLEAVE_LIB_STRATEGY_DIMCLASSES_H
#define CLEAVE_LIB_STRATEGY_DIMCLASSES_H

#include "cleave/Interfaces/Interfaces.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include "llvm/ADT/EquivalenceClasses.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SmallPtrSet.h"

namespace cleave::strategy {

/// One class of dimensions that must be sharded alike.
struct DimClass {
  int64_t size = 0;
  /// False if some operation needs the dimension unsplit, or if a tensor has
  /// two dimensions of this class.
  bool splittable = true;
  /// (argument, dimension) of the function's parameters.
  llvm::SmallVector<std::pair<unsigned, int64_t>> parameterDims;
  /// The contractions with a parameter whose work is divided among ranks if the
  /// dimensions of this class are sharded. They are indices into
  /// DimClasses::contractionFlops.
  llvm::SmallVector<unsigned> divides;
  /// The number of bytes of results that become partial sums if the class is
  /// sharded. Terms of one sum count once, since only the sum is reduced.
  int64_t partialBytes = 0;
  llvm::SmallPtrSet<void *, 8> partialRoots;
};

/// Returns whether `value` is a parameter of its function.
bool isParameter(mlir::Value value);
/// Returns the operands that the operation adds up, according to its sharding
/// rule; empty if it is not an addition.
llvm::ArrayRef<unsigned> termsOf(const ShardingRule &rule);
/// Follows `value` through a chain of additions, as long as each sum has one
/// reader. Returns the last sum.
mlir::Value sumThatReceives(mlir::Value value);

class DimClasses {
public:
  explicit DimClasses(mlir::func::FuncOp func);

  /// The dimension classes in order of first appearance in the function.
  llvm::ArrayRef<DimClass> classes() const { return found; }
  /// Returns the class of a dimension; nullopt for a value that no operation
  /// reads or computes.
  std::optional<unsigned> indexOf(mlir::Value value, int64_t dim) const;
  /// Returns the FLOPs of each contraction with a parameter. A contraction is
  /// any operation that reduces over a dimension of a parameter. A row lookup
  /// in a table counts as a contraction with one-hot rows, because splitting it
  /// saves memory.
  llvm::ArrayRef<int64_t> contractionFlops() const { return flops; }

private:
  using Dim = unsigned; // numbered (value, dimension)
  Dim dimOf(mlir::Value value, int64_t dim);
  void connect(mlir::Operation *op, const ShardingRule &rule);
  void collect(mlir::func::FuncOp func);
  void collectOperation(mlir::Operation *op, const ShardingRule &rule);
  DimClass *classOf(mlir::Value value, int64_t dim);

  llvm::MapVector<std::pair<mlir::Value, int64_t>, Dim> numbers;
  llvm::SmallVector<int64_t> sizes;
  llvm::EquivalenceClasses<Dim> unions;
  llvm::DenseMap<Dim, unsigned> indexOfLeader;
  llvm::SmallVector<DimClass> found;
  llvm::SmallVector<int64_t> flops;
};

} // namespace cleave::strategy

#endif
