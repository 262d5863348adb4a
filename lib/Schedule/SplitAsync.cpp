// rt-split-async: makes permutations of tiles between ranks, and exchanges of
// the token rows of experts, asynchronous.

#include "Split.h"

#include "cleave/Interfaces/Condition.h"
#include "cleave/Memory/BoundaryTable.h"
#include "cleave/Schedule/Passes.h"

namespace cleave {
#define GEN_PASS_DEF_SPLITASYNCPASS
#include "cleave/Schedule/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;

/// Returns whether a compute operation between `from` and `to` can hide a
/// transfer.
static bool computesBetween(Operation *from, Operation *to) {
  for (Operation *op = from->getNextNode(); op && op != to;
       op = op->getNextNode())
    if (auto command = dyn_cast<rt::CommandOpInterface>(op);
        isa<rt::LaunchOp>(op) || (command && command.getFlops() > 0))
      return true;
  return false;
}

/// Returns the first operation that reads a result of the collective.
static Operation *firstReader(rt::CollectiveOp collective) {
  Operation *first = nullptr;
  for (Value value : collective.getValues())
    for (Operation *user : value.getUsers())
      if (!first || user->isBeforeInBlock(first))
        first = user;
  return first;
}

bool schedule::maySplit(rt::CollectiveOp collective) {
  return !collective.getToken() && !collective->hasAttr(kWhenAttrName);
}

bool schedule::isPlaced(rt::CollectiveOp collective) {
  return collective.getKind() == rt::CollectiveKind::Permute ||
         collective.getKind() == rt::CollectiveKind::AllToAllV;
}

rt::CollectiveOp schedule::startOf(OpBuilder &b, rt::CollectiveOp collective) {
  SmallVector<Type> types(collective.getResultTypes());
  types.push_back(rt::TokenType::get(b.getContext()));
  return rt::CollectiveOp::create(b, collective.getLoc(), types,
                                  collective->getOperands(),
                                  collective->getAttrs());
}

void schedule::endOf(OpBuilder &b, rt::CollectiveOp started,
                     rt::CollectiveOp collective) {
  auto wait = rt::WaitOp::create(
      b, collective.getLoc(), TypeRange(collective.getValues()),
      started.getToken(), started.getValues(), started->getOperands());
  collective->replaceAllUsesWith(wait->getResults());
  collective.erase();
}

namespace {
struct SplitAsyncPass : cleave::impl::SplitAsyncPassBase<SplitAsyncPass> {
  using Base::Base;

  void runOnOperation() override {
    for (func::FuncOp func : commandListsOf(getOperation()))
      for (auto collective :
           llvm::make_early_inc_range(func.getOps<rt::CollectiveOp>())) {
        if (!schedule::isPlaced(collective) || !schedule::maySplit(collective))
          continue;
        Operation *reader = firstReader(collective);
        if (!reader || !computesBetween(collective, reader))
          continue;
        OpBuilder b(collective);
        rt::CollectiveOp started = schedule::startOf(b, collective);
        b.setInsertionPoint(reader);
        schedule::endOf(b, started, collective);
      }
  }
};
} // namespace
