// rt-overlap: collectives while others compute.

#include "CommandTimes.h"
#include "OverlapPlan.h"
#include "Split.h"

#include "cleave/Interfaces/Condition.h"
#include "cleave/Memory/ActionPlan.h"
#include "cleave/Schedule/Passes.h"

#include "llvm/ADT/BitVector.h"

#include <limits>
#include <numeric>

namespace cleave {
#define GEN_PASS_DEF_OVERLAPPASS
#include "cleave/Schedule/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::memory;
using namespace cleave::schedule;

namespace {

bool mayOverlap(Operation *op) {
  auto collective = dyn_cast<rt::CollectiveOp>(op);
  return collective && maySplit(collective) && collective.getGroupSize() > 1;
}

bool isMovable(Operation *op) {
  return mayOverlap(op) && !isPlaced(cast<rt::CollectiveOp>(op));
}

/// rt-split-async starts it where it stands and ends it before its first
/// reader.
bool isPinned(Operation *op) {
  return mayOverlap(op) && isPlaced(cast<rt::CollectiveOp>(op));
}

/// Views take no memory of their own: they may stand where they are read.
void sinkViews(Block &block) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block))) {
    if (!isa<rt::AliasOp>(op) || op.use_empty())
      continue;
    Operation *first = nullptr;
    for (Operation *user : op.getUsers())
      if (!first || user->isBeforeInBlock(first))
        first = user;
    op.moveBefore(first);
  }
}

/// The commands of one function as OverlapPlan.h sees them.
class Action {
public:
  /// `memory`: what lives when, before anything has moved.
  Action(func::FuncOp func, const ActionPlan &memory, const CommandTimes &times)
      : contention(times.contention()) {
    Block &block = func.getBody().front();
    end = block.getTerminator();
    llvm::DenseMap<Operation *, size_t> transferOf, stepOf;
    llvm::DenseMap<Operation *, int64_t> positionOf;
    SmallVector<int64_t> positions; // of steps
    int64_t position = 0;
    for (Operation &op : block) {
      positionOf[&op] = position++;
      if (isMovable(&op)) {
        transferOf[&op] = collectives.size();
        collectives.push_back(cast<rt::CollectiveOp>(op));
        transfers.emplace_back().place = ops.size();
        continue;
      }
      stepOf[&op] = ops.size();
      if (&op == end)
        continue;
      Step &step = steps.emplace_back();
      // What comes under a condition is not reckoned with.
      if (isPinned(&op)) {
        step.starts = transferOf[&op] = collectives.size();
        collectives.push_back(cast<rt::CollectiveOp>(op));
        Transfer &transfer = transfers.emplace_back();
        transfer.pinned = true;
        transfer.place = transfer.ready = ops.size();
      } else if (!op.hasAttr(kWhenAttrName)) {
        step.seconds = times.of(&op);
        step.communicates = isa<rt::CollectiveOp>(op);
      }
      positions.push_back(position - 1);
      ops.push_back(&op);
    }
    for (auto [collective, transfer] :
         llvm::zip_equal(collectives, transfers)) {
      transfer.seconds = times.of(collective);
      transfer.need = ops.size();
      if (transfer.pinned) {
        for (Value result : collective.getValues())
          for (Operation *user : result.getUsers())
            transfer.need = std::min(transfer.need,
                                     stepOf.contains(user)
                                         ? stepOf[user]
                                         : transfers[transferOf[user]].place);
        continue;
      }
      int64_t at = positionOf[collective];
      SmallVector<int64_t> counted;
      auto bytesOf = [&](Value value, auto isOwn) -> int64_t {
        int64_t index = memory.placeOf(value).storage;
        const Storage &storage = memory.storages[index];
        if (storage.boundary >= 0 || !isOwn(storage) ||
            llvm::is_contained(counted, index))
          return 0;
        counted.push_back(index);
        return alignUp(storage.bytes);
      };
      for (Value operand : collective->getOperands()) {
        if (Operation *def = operand.getDefiningOp()) {
          auto before = transferOf.find(def);
          if (before != transferOf.end() && !stepOf.contains(def))
            transfer.after.push_back(before->second);
          else
            transfer.ready = std::max(transfer.ready, stepOf[def] + 1);
        }
        transfer.heldBytes += bytesOf(operand, [&](const Storage &storage) {
          return storage.last == at;
        });
        // Whoever overwrites it waits.
        for (OpOperand &use : operand.getUses())
          if (overwrites(use) && positionOf[use.getOwner()] > at)
            transfer.need = std::min(transfer.need, stepOf[use.getOwner()]);
      }
      for (Value result : collective.getValues()) {
        transfer.resultBytes += bytesOf(result, [&](const Storage &storage) {
          return storage.first == at;
        });
        for (Operation *user : result.getUsers())
          if (auto step = stepOf.find(user); step != stepOf.end())
            transfer.need = std::min(transfer.need, step->second);
      }
    }
    std::vector<int64_t> change(position + 1);
    for (auto [index, storage] : llvm::enumerate(memory.storages))
      if (memory.isRoot(index) && storage.boundary < 0) {
        change[std::max<int64_t>(storage.first, 0)] += alignUp(storage.bytes);
        change[storage.last + 1] -= alignUp(storage.bytes);
      }
    std::partial_sum(change.begin(), change.end(), change.begin());
    most = *llvm::max_element(change);
    for (int64_t at : positions)
      live.push_back(change[at]);
  }

  /// The most bytes alive at once, and what the largest collective gives.
  int64_t most = 0;
  int64_t largestResult() const {
    int64_t bytes = 0;
    for (const Transfer &transfer : transfers)
      bytes = std::max(bytes, transfer.resultBytes);
    return bytes;
  }
  bool isEmpty() const {
    return llvm::all_of(
        transfers, [](const Transfer &transfer) { return transfer.pinned; });
  }

  OverlapPlan plan(int64_t budget) const {
    return planOverlap(steps, transfers, live, budget, contention);
  }

  void apply(const OverlapPlan &plan) {
    std::vector<size_t> starts(transfers.size());
    llvm::BitVector apart(transfers.size());
    for (const OverlapPlan::Event &event : plan.events) {
      if (event.starts)
        starts[event.transfer] = event.step;
      else
        apart[event.transfer] = std::any_of(
            steps.begin() + starts[event.transfer], steps.begin() + event.step,
            [](const Step &step) { return step.seconds > 0; });
    }
    SmallVector<rt::CollectiveOp> started(transfers.size());
    for (const OverlapPlan::Event &event : plan.events) {
      Operation *before = event.step < ops.size() ? ops[event.step] : end;
      rt::CollectiveOp collective = collectives[event.transfer];
      OpBuilder b(before);
      if (!apart[event.transfer]) {
        if (event.starts)
          collective->moveBefore(before);
      } else if (event.starts) {
        started[event.transfer] = startOf(b, collective);
      } else {
        endOf(b, started[event.transfer], collective);
      }
    }
  }

private:
  const double contention;

  static bool overwrites(OpOperand &use) {
    auto command = dyn_cast<rt::CommandOpInterface>(use.getOwner());
    return command && llvm::any_of(command.getReuse(), [&](rt::Reuse reuse) {
             return reuse.required && reuse.operand == use.getOperandNumber();
           });
  }

  Operation *end;
  SmallVector<Operation *> ops;
  SmallVector<rt::CollectiveOp> collectives;
  SmallVector<Step> steps;
  SmallVector<Transfer> transfers;
  std::vector<int64_t> live;
};

struct OverlapPass : cleave::impl::OverlapPassBase<OverlapPass> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    bool communicates = false;
    for (func::FuncOp func : actionsOf(module)) {
      sinkViews(func.getBody().front());
      communicates |= llvm::any_of(func.getBody().front(), isCollective);
    }
    // Stages wait for each other, too, for which `rt.overlap` says how long they
    // take.
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
    // What named buffers leave. Slots of pipelines are counted later.
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

  /// `memory`, `bytes`: planned for the function as it is; `largest`: for any
  /// of those that use the same memory; `room`: the most that there is.
  LogicalResult overlap(func::FuncOp func, const BoundaryTable &table,
                        ActionPlan memory, int64_t bytes, int64_t largest,
                        int64_t room, const CommandTimes &times) {
    OwningOpRef<func::FuncOp> before;
    int64_t missing = 0;
    // Planned memory may be more than what is alive; then less may be.
    for (int attempt = 0; attempt < 3; ++attempt) {
      Action action(func, memory, times);
      if (action.isEmpty()) {
        note(func, action.plan(0));
        return success();
      }
      int64_t allowed = std::max(
          largest, std::min(room, bytes + buffers * action.largestResult()));
      int64_t budget = allowed - (bytes - action.most) - missing;
      OverlapPlan plan = action.plan(budget);
      before = func.clone();
      action.apply(plan);
      FailureOr<ActionPlan> after = ActionPlan::create(func, table);
      if (failed(after))
        return failure();
      int64_t needed = after->pack();
      if (needed <= allowed) {
        note(func, plan);
        return success();
      }
      missing += needed - allowed;
      func.getBody().takeBody(before->getBody());
      FailureOr<ActionPlan> again = ActionPlan::create(func, table);
      if (failed(again))
        return failure();
      memory = std::move(*again);
    }
    // The plain order, in which nothing starts early.
    note(func, Action(func, memory, times).plan(/*budget=*/-1));
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
