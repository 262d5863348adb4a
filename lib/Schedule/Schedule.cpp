// rt-schedule: orders the commands.

#include "cleave/Dialect/RT/IR/RT.h"
#include "cleave/Memory/BoundaryTable.h"
#include "cleave/Schedule/Passes.h"

namespace cleave {
#define GEN_PASS_DEF_SCHEDULEPASS
#include "cleave/Schedule/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;

/// Returns whether moving the command to a later position extends no lifetime:
/// it only moves data, and all its operands are live during the whole action.
static bool sinks(Operation *op) {
  if (!isa<rt::FillOp, rt::AliasOp, rt::CopyOp>(op))
    return false;
  return llvm::all_of(op->getOperands(), [](Value operand) {
    return isa<BlockArgument>(operand);
  });
}

namespace {
struct SchedulePass : cleave::impl::SchedulePassBase<SchedulePass> {
  using Base::Base;

  void runOnOperation() override {
    for (func::FuncOp func : commandListsOf(getOperation())) {
      SmallVector<Operation *> ops;
      for (Operation &op : actionBody(func))
        ops.push_back(&op);
      // Operations are visited in reverse, so that a moved reader's operands
      // can follow it down.
      for (Operation *op : llvm::reverse(ops)) {
        if (!sinks(op))
          continue;
        Operation *first = nullptr;
        for (Operation *user : op->getUsers())
          if (!first || user->isBeforeInBlock(first))
            first = user;
        if (first)
          op->moveBefore(first);
      }
    }
  }
};
} // namespace
