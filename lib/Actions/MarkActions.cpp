// pipe-mark-actions: marks every collective of a stage with the pipeline action
// that will execute it: F (forward), I (gradients of inputs), W (gradients of
// weights) or B (I and W together).

#include "Ports.h"
#include "cleave/Actions/Passes.h"
#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Interfaces/StageAttrs.h"

namespace cleave {
#define GEN_PASS_DEF_MARKACTIONSPASS
#include "cleave/Actions/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::actions;

namespace {
struct MarkActionsPass : cleave::impl::MarkActionsPassBase<MarkActionsPass> {
  using Base::Base;

  void runOnOperation() override {
    auto func = getOperation().lookupSymbol<func::FuncOp>(nn::kLossGradFunc);
    if (!func || func.isExternal())
      return;
    for (auto [op, part] : partsOf(func, weightsApart))
      if (isa<dist::CollectiveOpInterface>(op))
        op->setAttr(
            kActionAttr,
            StringAttr::get(&getContext(), nameOfPart(part, weightsApart)));
  }
};
} // namespace
