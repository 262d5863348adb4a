// The values that the stages of a pipeline sum in their updates, as given by
// `pipe.sums`.

#ifndef CLEAVE_INTERFACES_STAGESUMS_H
#define CLEAVE_INTERFACES_STAGESUMS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <map>
#include <string>
#include <vector>

namespace cleave {

struct StageSum {
  /// The sum as one stage names it.
  struct Member {
    int part = 0; ///< of @update, after which it stands
    std::string operand, result;
  };
  std::vector<int> stages;
  bool isTied = false;           ///< of a gradient that several stages have
  std::map<int, Member> members; ///< by stage
};

/// Returns the name of a part of @update, without the stage, such as
/// "update.0".
std::string updatePart(int part);

/// Returns the sums over stages. All stages list their sums in the same order:
/// the n-th sum over a set of stages is the same sum in each stage of the set.
/// A stage lists sums over some of the stages before sums over all stages,
/// because the latter read results of the former. `find` returns a stage's
/// function by name, or null.
std::vector<StageSum> stageSums(
    int stages,
    llvm::function_ref<mlir::func::FuncOp(int stage, const std::string &name)>
        find);

} // namespace cleave

#endif
