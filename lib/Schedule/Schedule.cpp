// rt-schedule: the order of commands.

#include "cleave/Dialect/RT/IR/RT.h"
#include "cleave/Memory/BoundaryTable.h"
#include "cleave/Schedule/Passes.h"

namespace cleave {
#define GEN_PASS_DEF_SCHEDULEPASS
#include "cleave/Schedule/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;

/// Moving it down keeps nothing alive for longer: it moves data and reads only
/// what lives for the whole action.
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
      // Readers first, so that what they read follows them down.
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
