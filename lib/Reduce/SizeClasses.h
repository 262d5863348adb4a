// Classes of dimensions: sets of dimensions, of one or several values, that
// must have the same size according to the sharding rules.

#ifndef CLEAVE_LIB_REDUCE_SIZECLASSES_H
#define CLEAVE_LIB_REDUCE_SIZECLASSES_H

#include "cleave/Interfaces/Interfaces.h"
#include "cleave/Partition/Utils/PortTable.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/EquivalenceClasses.h"

#include <set>

namespace cleave::reduce {

class SizeClasses {
public:
  using Dim = std::pair<size_t, size_t>; // number of the value, dimension

  explicit SizeClasses(mlir::ModuleOp module);

  /// Returns one dimension of each class (a set of dimensions that must have
  /// equal sizes), in a fixed order.
  llvm::SmallVector<Dim> leaders() const;
  int64_t size(Dim dim) const;
  /// Gives all dimensions in the class of `leader` another size. Returns false
  /// if one of them cannot have that size.
  bool resize(Dim leader, int64_t size);

private:
  void add(mlir::Value value);
  void unite(mlir::Value a, mlir::Value b);
  void addOp(mlir::Operation *op);
  void addFactors(mlir::ValueRange values,
                  llvm::ArrayRef<TensorFactors> factors,
                  llvm::MutableArrayRef<std::optional<Dim>> first);

  llvm::EquivalenceClasses<Dim> classes;
  /// Dimensions whose size is never changed: those of several factors, those of
  /// different sizes in a convolution or pooling, and those of operations
  /// without a sharding rule.
  std::set<Dim> fixed;
  llvm::SmallVector<mlir::Value> values;
  llvm::DenseMap<mlir::Value, size_t> number;
};

} // namespace cleave::reduce

#endif // CLEAVE_LIB_REDUCE_SIZECLASSES_H
