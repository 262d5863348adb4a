// What the stages of a pipeline add up in their updates, as `pipe.sums` says.

#ifndef CLEAVE_INTERFACES_STAGESUMS_H
#define CLEAVE_INTERFACES_STAGESUMS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <map>
#include <string>
#include <vector>

namespace cleave {

struct StageSum {
  /// The sum in the words of one stage.
  struct Member {
    int part = 0; ///< of @update, after which it stands
    std::string operand, result;
  };
  std::vector<int> stages;
  bool isTied = false;           ///< of a gradient that several stages have
  std::map<int, Member> members; ///< by stage
};

/// The name of a part of @update, without the stage: "update.0".
std::string updatePart(int part);

/// All stages write their sums in one order: those of the same stages
/// correspond. Sums of few stages come first: what all add up reads them.
/// `find` gives a stage's function of a name, or null.
std::vector<StageSum> stageSums(
    int stages,
    llvm::function_ref<mlir::func::FuncOp(int stage, const std::string &name)>
        find);

} // namespace cleave

#endif
