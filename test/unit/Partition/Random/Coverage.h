// Counts which rules the cases exercise, and how: for each rule and kind of
// factor, the cases in which such a factor is split and leaves a remainder, is
// split by a part of an axis, meets a partial value, or a value with several
// readers.

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

  /// Counts a module as dist-plan-ops left it.
  void add(mlir::ModuleOp module);
  /// Notes the operations of a module.
  void note(mlir::ModuleOp module);

  void print(llvm::raw_ostream &out) const;
  /// The cells with fewer cases than `least`, and what is unseen.
  std::string missing(mlir::MLIRContext *context, int64_t least) const;
  /// The operations with a rule that never came up; one line each.
  std::string unseen(mlir::MLIRContext *context) const;

private:
  /// `isFirst`: whether the case has not counted in this cell yet.
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
