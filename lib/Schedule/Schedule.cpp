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

/// Whether moving the command down extends no lifetime: it moves data, and all
/// its operands live for the whole action.
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
    for (func::FuncOp func : actionsOf(getOperation())) {
      SmallVector<Operation *> ops;
      for (Operation &op : actionBody(func))
        ops.push_back(&op);
      // Readers are visited first, so that their operands can follow them down.
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
