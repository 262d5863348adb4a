// rt-overlap: overlaps collectives with compute.

#include "Action.h"

#include "cleave/Schedule/Passes.h"

#include <limits>

namespace cleave {
#define GEN_PASS_DEF_OVERLAPPASS
#include "cleave/Schedule/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::memory;
using namespace cleave::schedule;

namespace {

struct OverlapPass : cleave::impl::OverlapPassBase<OverlapPass> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    bool communicates = false;
    for (func::FuncOp func : actionsOf(module)) {
      sinkViews(actionBody(func));
      communicates |= llvm::any_of(actionBody(func), isCollective);
    }
    // `rt.overlap` also records the modelled time of a pipeline stage, so
    // functions of stages get it even without collectives.
    if (!communicates &&
        llvm::all_of(stagesOf(module), [](int64_t stage) { return stage < 0; }))
      return;
    FailureOr<CommandTimes> times = CommandTimes::load(module, cluster);
    if (failed(times))
      return signalPassFailure();
    for (int64_t stage : stagesOf(module))
      if (failed(overlap(module, stage, *times)))
        return signalPassFailure();
  }

  static bool isCollective(Operation &op) { return isa<rt::CollectiveOp>(op); }

  LogicalResult overlap(ModuleOp module, int64_t stage,
                        const CommandTimes &times) {
    FailureOr<BoundaryTable> table = BoundaryTable::collect(module, stage);
    if (failed(table))
      return failure();
    SmallVector<func::FuncOp> actions = actionsOf(module, stage);
    std::vector<ActionPlan> plain;
    SmallVector<int64_t> planned;
    int64_t largest = 0;
    for (func::FuncOp func : actions) {
      FailureOr<ActionPlan> memory = ActionPlan::create(func, *table);
      if (failed(memory))
        return failure();
      planned.push_back(memory->pack());
      largest = std::max(largest, planned.back());
      plain.push_back(std::move(*memory));
    }
    // The memory that remains below `limit` after all named buffers
    // (parameters, optimizer state, ...). In pipelines, the values of the
    // microbatches in flight take further memory, which is subtracted later, so
    // there is no limit here.
    int64_t room = std::numeric_limits<int64_t>::max();
    if (limit > 0 && stage < 0) {
      room = limit;
      for (const BoundaryBuffer &buffer : table->buffers)
        room -= alignUp(buffer.bytes);
    }
    for (auto [func, memory, bytes] : llvm::zip_equal(actions, plain, planned))
      if (failed(overlap(func, *table, std::move(memory), bytes, largest, room,
                         times)))
        return failure();
    return success();
  }

  /// Overlaps the collectives of one function with compute. `memory` is the
  /// memory plan of the function's current order, and `bytes` is the memory
  /// that this plan needs. Several functions use the same memory one after the
  /// other: `largest` is the most that one of them needs, and `room` is the
  /// most that they may use.
  LogicalResult overlap(func::FuncOp func, const BoundaryTable &table,
                        ActionPlan memory, int64_t bytes, int64_t largest,
                        int64_t room, const CommandTimes &times) {
    int64_t allowed = bytes, alive = 0;
    {
      Action action(func, memory, times);
      if (action.isEmpty()) {
        note(func, action.plan(0));
        return success();
      }
      alive = action.most();
      allowed = std::max(
          largest, std::min(room, bytes + buffers * action.largestResult()));
    }
    FailureOr<OwningOpRef<func::FuncOp>> plain =
        fillWaits(func, table, memory, allowed - (bytes - alive), times);
    if (failed(plain))
      return failure();
    FailureOr<bool> placed = place(
        func, table, memory, *plain ? memory.pack() : bytes, allowed, times);
    if (failed(placed))
      return failure();
    if (!*placed && *plain) {
      if (failed(restore(func, std::move(*plain), table, memory)))
        return failure();
      placed = place(func, table, memory, bytes, allowed, times);
      if (failed(placed))
        return failure();
    }
    // The function keeps its original order, in which no collective starts
    // early.
    if (!*placed)
      note(func, Action(func, memory, times).plan(/*budget=*/-1));
    return success();
  }

  /// Moves commands into the waits for collectives, as long as this makes the
  /// function faster and no more than `budget` bytes are live at once. Returns
  /// the original function, or null if nothing moved.
  static FailureOr<OwningOpRef<func::FuncOp>>
  fillWaits(func::FuncOp func, const BoundaryTable &table, ActionPlan &memory,
            int64_t budget, const CommandTimes &times) {
    constexpr int kRounds = 4;
    /// Commands are moved only if at least the fraction kWorthwhile of the
    /// function's time is exposed communication. The new order is kept only if
    /// it saves the fraction kFaster of the function's time.
    constexpr double kWorthwhile = 0.02, kFaster = 0.005;
    OwningOpRef<func::FuncOp> plain;
    for (int round = 0; round < kRounds; ++round) {
      Action action(func, memory, times);
      OverlapPlan plan = action.plan(budget);
      double seconds = plan.compute + plan.exposed;
      if (plan.exposed < kWorthwhile * seconds)
        break;
      OwningOpRef<func::FuncOp> before = func.clone();
      if (!action.fillWaits(plan, memory))
        break;
      FailureOr<ActionPlan> after = ActionPlan::create(func, table);
      if (failed(after))
        return failure();
      Action filled(func, *after, times);
      OverlapPlan next = filled.plan(budget);
      if (filled.most() > budget ||
          next.compute + next.exposed > (1 - kFaster) * seconds) {
        if (failed(restore(func, std::move(before), table, memory)))
          return failure();
        break;
      }
      memory = std::move(*after);
      if (!plain)
        plain = std::move(before);
    }
    return std::move(plain);
  }

  /// Starts and ends collectives so that planned memory is at most `allowed`.
  /// Returns false, and does not change the function, if that is impossible.
  static FailureOr<bool> place(func::FuncOp func, const BoundaryTable &table,
                               ActionPlan &memory, int64_t bytes,
                               int64_t allowed, const CommandTimes &times) {
    int64_t missing = 0;
    // Because of gaps between buffers, planned memory may exceed the live
    // bytes. If it exceeds `allowed`, the next attempt has a smaller budget of
    // live bytes.
    for (int attempt = 0; attempt < 3; ++attempt) {
      Action action(func, memory, times);
      int64_t budget = allowed - (bytes - action.most()) - missing;
      OverlapPlan plan = action.plan(budget);
      OwningOpRef<func::FuncOp> before = func.clone();
      action.apply(plan);
      FailureOr<ActionPlan> after = ActionPlan::create(func, table);
      if (failed(after))
        return failure();
      int64_t needed = after->pack();
      if (needed <= allowed) {
        note(func, plan);
        return true;
      }
      missing += needed - allowed;
      if (failed(restore(func, std::move(before), table, memory)))
        return failure();
    }
    return false;
  }

  /// Restores the previous function.
  static LogicalResult restore(func::FuncOp func,
                               OwningOpRef<func::FuncOp> before,
                               const BoundaryTable &table, ActionPlan &memory) {
    func.getBody().takeBody(before->getBody());
    FailureOr<ActionPlan> again = ActionPlan::create(func, table);
    if (failed(again))
      return failure();
    memory = std::move(*again);
    return success();
  }

  static void note(func::FuncOp func, const OverlapPlan &plan) {
    Builder b(func.getContext());
    func->setAttr(
        rt::kOverlapAttr,
        b.getF64ArrayAttr({plan.compute, plan.communication, plan.exposed}));
  }
};
} // namespace
