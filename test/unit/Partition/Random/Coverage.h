// Counts how many random programs (cases) test each sharding rule. There is one
// count for each combination of a rule, a kind of factor and one of these
// situations: the factor is sharded but its size is not divisible by the number
// of tiles; it is sharded over a sub-axis; an operand or result of the
// operation is a partial value; or the factor is sharded and an operand or
// result has several readers.

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

  /// Adds one case: counts each combination (rule, kind of factor, situation)
  /// that occurs in the module. dist-plan-ops must have run on the module.
  void add(mlir::ModuleOp module);
  /// Records which operations a module contains.
  void note(mlir::ModuleOp module);

  void print(llvm::raw_ostream &out) const;
  /// Lists the combinations (rule, kind of factor, situation) that fewer than
  /// `least` cases test, and the operations with a sharding rule that occurred
  /// in no case.
  std::string missing(mlir::MLIRContext *context, int64_t least) const;
  /// Lists the operations with a sharding rule that never occurred, one per
  /// line.
  std::string unseen(mlir::MLIRContext *context) const;

private:
  /// Counts the combinations that one operation tests. `isFirst` returns
  /// whether the current case has not yet been counted for the given
  /// combination.
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
