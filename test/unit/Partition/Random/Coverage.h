// Counts which sharding rules the cases exercise. For each rule and kind of
// factor, it counts the cases in which the factor is sharded with a remainder,
// is sharded over a sub-axis, meets a partial value, or belongs to a value with
// several readers.

#ifndef CLEAVE_TEST_UNIT_PARTITION_RANDOM_COVERAGE_H
#define CLEAVE_TEST_UNIT_PARTITION_RANDOM_COVERAGE_H

#include "cleave/Dialect/Dist/IR/Layout.h"
#include "mlir/IR/BuiltinOps.h"

#include <array>
#include <map>
#include <set>

namespace cleave::random {

class Coverage {
public:
  enum Column { Uneven, SubAxis, Partial, MultiUser, Columns };

  /// Counts the combinations in a module after dist-plan-ops.
  void add(mlir::ModuleOp module);
  /// Records which operations a module contains.
  void note(mlir::ModuleOp module);

  void print(llvm::raw_ostream &out) const;
  /// Lists the combinations with fewer than `least` cases, and the operations
  /// that did not occur.
  std::string missing(mlir::MLIRContext *context, int64_t least) const;
  /// Lists the operations with a sharding rule that never occurred, one per
  /// line.
  std::string unseen(mlir::MLIRContext *context) const;

private:
  /// Counts an operation. `isFirst` returns whether this case has not been
  /// counted for the given combination before.
  void addOperation(
      mlir::Operation *op, const dist::MeshAxes &mesh,
      const llvm::DenseMap<mlir::Value, dist::Layout> &layouts,
      llvm::function_ref<bool(std::string, std::string, Column)> isFirst);

  std::map<std::pair<std::string, std::string>, std::array<int64_t, Columns>>
      cells;
  std::set<std::string> operations;
};

} // namespace cleave::random

#endif
