// Classes of dimensions: which dimensions of which values must be split alike.
//
// Two dimensions are in one class if a factor of some operation is the whole
// of both: "bsh,hd->bsd" connects the h of both operands, and b, s, d with the
// result's. Classes know nothing of names or layers.

#ifndef CLEAVE_LIB_STRATEGY_DIMCLASSES_H
#define CLEAVE_LIB_STRATEGY_DIMCLASSES_H

#include "cleave/Interfaces/Interfaces.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include "llvm/ADT/EquivalenceClasses.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SmallPtrSet.h"

namespace cleave::strategy {

/// What is known of one class.
struct DimClass {
  int64_t size = 0;
  /// Some operation needs it whole, or a tensor has it twice.
  bool splittable = true;
  /// (argument, dimension) of the function's parameters.
  llvm::SmallVector<std::pair<unsigned, int64_t>> parameterDims;
  /// Contractions with a parameter that a split divides; as indices into
  /// DimClasses::contractionFlops.
  llvm::SmallVector<unsigned> divides;
  /// Bytes of the results that a split leaves partial. Partial results that are
  /// added to one another are reduced once.
  int64_t partialBytes = 0;
  llvm::SmallPtrSet<void *, 8> partialRoots;
};

/// Whether `value` is a parameter of the function around it.
bool isParameter(mlir::Value value);
/// Whether the operation, of this rule, adds some of its operands: the group.
llvm::ArrayRef<unsigned> termsOf(const ShardingRule &rule);
/// The end of the chain of sums that `value`, read by nothing else, goes into.
mlir::Value sumThatReceives(mlir::Value value);

class DimClasses {
public:
  explicit DimClasses(mlir::func::FuncOp func);

  /// In order of first appearance in the function.
  llvm::ArrayRef<DimClass> classes() const { return found; }
  /// The class of a dimension; none for a value that no operation reads or
  /// makes.
  std::optional<unsigned> indexOf(mlir::Value value, int64_t dim) const;
  /// FLOPs of each contraction with a parameter. An operation that reduces
  /// over a dimension of a parameter is one: reading rows of a table stands for
  /// the contraction with one-hot rows, of which a split saves the memory.
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
