// The values that are summed over the stages of a pipeline during `@update`,
// such as the gradients of a tied parameter. The attribute `pipe.sums` lists
// them in each stage.

#ifndef CLEAVE_INTERFACES_STAGESUMS_H
#define CLEAVE_INTERFACES_STAGESUMS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <map>
#include <string>
#include <vector>

namespace cleave {

struct StageSum {
  /// How one stage takes part in the sum: the name of the value that it adds
  /// (`operand`), and the name that it gives to the result.
  struct Member {
    int part = 0; ///< the part of @update after which the sum takes place
    std::string operand, result;
  };
  std::vector<int> stages;       ///< the stages that take part in the sum
  bool isTied = false;           ///< sums the gradients of a tied parameter
  std::map<int, Member> members; ///< by stage
};

/// The `@update` of a stage is split at its sums over stages into functions
/// that run one after another. Returns the name of function number `part`, such
/// as "update.0", without the number of the stage.
std::string updatePart(int part);

/// Returns the sums over stages. All stages list their sums in the same order:
/// the n-th sum over a set of stages is the same sum in each stage of the set.
/// A stage lists sums over some of the stages before sums over all stages,
/// because the latter read results of the former. `find` returns the function
/// with the given name of a stage, or null if the stage has none.
std::vector<StageSum> stageSums(
    int stages,
    llvm::function_ref<mlir::func::FuncOp(int stage, const std::string &name)>
        find);

} // namespace cleave

#endif
