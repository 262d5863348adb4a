// Iterates over the actions of a program.

#include "cleave/Interfaces/ProgramWalk.h"

#include "cleave/Dialect/RT/IR/RT.h"
#include "cleave/Interfaces/StageAttrs.h"

using namespace mlir;
using namespace cleave;

static int64_t stageOf(func::FuncOp func) {
  auto stage = func->getAttrOfType<IntegerAttr>(kStageAttr);
  return stage ? stage.getInt() : -1;
}

SmallVector<func::FuncOp> cleave::commandListsOf(ModuleOp module,
                                                 int64_t stage) {
  SmallVector<func::FuncOp> lists;
  for (auto func : module.getOps<func::FuncOp>())
    if (!func.isExternal() && !func->hasAttr(kKernelAttr) &&
        (stage < 0 || stageOf(func) == stage))
      lists.push_back(func);
  return lists;
}

SmallVector<func::FuncOp> cleave::actionsOf(ModuleOp module, int64_t stage) {
  SmallVector<func::FuncOp> actions = commandListsOf(module, stage);
  llvm::erase_if(
      actions, [](func::FuncOp func) { return func->hasAttr(rt::kBodyAttr); });
  return actions;
}

SmallVector<int64_t> cleave::stagesOf(ModuleOp module) {
  int64_t last = -1;
  for (func::FuncOp func : actionsOf(module))
    last = std::max(last, stageOf(func));
  if (last < 0)
    return {-1};
  return llvm::to_vector(llvm::seq<int64_t>(0, last + 1));
}
