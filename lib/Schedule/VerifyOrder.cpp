// rt-verify-order: checks that each asynchronous collective has one wait, and
// that its data is not used before the wait.

#include "cleave/Dialect/RT/IR/RT.h"
#include "cleave/Memory/BoundaryTable.h"
#include "cleave/Schedule/Passes.h"

namespace cleave {
#define GEN_PASS_DEF_VERIFYORDERPASS
#include "cleave/Schedule/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;

static LogicalResult verifyStart(rt::CollectiveOp start) {
  Value token = start.getToken();
  rt::WaitOp wait;
  for (Operation *user : token.getUsers()) {
    if (wait)
      return start.emitOpError("is ended by more than one wait");
    wait = dyn_cast<rt::WaitOp>(user);
    if (!wait)
      return user->emitOpError("reads the token of a collective but does not "
                               "end it");
  }
  if (!wait)
    return start.emitOpError("starts and is never ended by an rt.wait");
  for (Value value : start.getValues())
    for (Operation *user : value.getUsers())
      if (user != wait)
        return user->emitOpError("reads what a collective still writes; read "
                                 "the results of its rt.wait");
  for (Value source : start->getOperands())
    for (Operation *user : source.getUsers()) {
      if (user->isBeforeInBlock(start) || wait->isBeforeInBlock(user))
        continue;
      auto command = dyn_cast<rt::CommandOpInterface>(user);
      if (!command)
        continue;
      for (rt::Reuse reuse : command.getReuse())
        if (reuse.required && user->getOperand(reuse.operand) == source)
          return user->emitOpError("overwrites what a collective still reads");
    }
  return success();
}

namespace {
struct VerifyOrderPass : cleave::impl::VerifyOrderPassBase<VerifyOrderPass> {
  using Base::Base;

  void runOnOperation() override {
    bool valid = true;
    for (func::FuncOp func : commandListsOf(getOperation()))
      for (auto start : func.getOps<rt::CollectiveOp>())
        if (start.getToken())
          valid &= succeeded(verifyStart(start));
    if (!valid)
      signalPassFailure();
  }
};
} // namespace
