// The commands of one function; see Action.h.

#include "Action.h"
#include "Split.h"

#include "cleave/Interfaces/Condition.h"
#include "cleave/Interfaces/Interfaces.h"

#include <numeric>

using namespace mlir;
using namespace cleave;
using namespace cleave::memory;
using namespace cleave::schedule;

static bool mayOverlap(Operation *op) {
  auto collective = dyn_cast<rt::CollectiveOp>(op);
  return collective && maySplit(collective) && collective.getGroupSize() > 1;
}

static bool isMovable(Operation *op) {
  return mayOverlap(op) && !isPlaced(cast<rt::CollectiveOp>(op));
}

/// Returns whether rt-split-async makes the collective asynchronous: it starts
/// at its present place and ends before its first reader.
static bool isPinned(Operation *op) {
  return mayOverlap(op) && isPlaced(cast<rt::CollectiveOp>(op));
}

static bool overwrites(OpOperand &use) {
  auto command = dyn_cast<rt::CommandOpInterface>(use.getOwner());
  return command && llvm::any_of(command.getReuse(), [&](rt::Reuse reuse) {
           return reuse.required && reuse.operand == use.getOperandNumber();
         });
}

void cleave::schedule::sinkViews(Block &block) {
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

Action::Action(func::FuncOp func, const ActionPlan &memory,
               const CommandTimes &times)
    : contention(times.contention()), block(actionBody(func)),
      end(block.getTerminator()) {
  SmallVector<int64_t> positions; // position of each step in the block
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
    // Collectives under a condition are not modelled.
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
  for (auto [collective, transfer] : llvm::zip_equal(collectives, transfers)) {
    transfer.seconds = times.of(collective);
    addTransfer(transfer, collective, memory);
  }
  std::vector<int64_t> change(position + 1);
  for (auto [index, storage] : llvm::enumerate(memory.storages))
    if (memory.isRoot(index) && storage.boundary < 0) {
      change[std::max<int64_t>(storage.first, 0)] += alignUp(storage.bytes);
      change[storage.last + 1] -= alignUp(storage.bytes);
    }
  std::partial_sum(change.begin(), change.end(), change.begin());
  mostAlive = *llvm::max_element(change);
  for (int64_t at : positions)
    live.push_back(change[at]);
}

/// Fills in the collective's earliest start, its first reader, and the memory
/// that it uses.
void Action::addTransfer(Transfer &transfer, rt::CollectiveOp collective,
                         const ActionPlan &memory) {
  transfer.need = ops.size();
  if (transfer.pinned) {
    for (Value result : collective.getValues())
      for (Operation *user : result.getUsers())
        transfer.need =
            std::min(transfer.need, stepOf.contains(user)
                                        ? stepOf[user]
                                        : transfers[transferOf[user]].place);
    return;
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
    transfer.heldBytes += bytesOf(
        operand, [&](const Storage &storage) { return storage.last == at; });
    // A command that overwrites the collective's operand must wait for the
    // collective.
    for (OpOperand &use : operand.getUses())
      if (overwrites(use) && positionOf[use.getOwner()] > at)
        transfer.need = std::min(transfer.need, stepOf[use.getOwner()]);
  }
  for (Value result : collective.getValues()) {
    transfer.resultBytes += bytesOf(
        result, [&](const Storage &storage) { return storage.first == at; });
    for (Operation *user : result.getUsers())
      if (auto step = stepOf.find(user); step != stepOf.end())
        transfer.need = std::min(transfer.need, step->second);
  }
}

int64_t Action::largestResult() const {
  int64_t largest = 0;
  for (auto collective : collectives) {
    int64_t bytes = 0;
    for (Value value : collective.getValues())
      bytes += alignUp(bytesOf(value.getType()));
    largest = std::max(largest, bytes);
  }
  return largest;
}

bool Action::isEmpty() const {
  return llvm::all_of(transfers,
                      [](const Transfer &transfer) { return transfer.pinned; });
}

/// Returns a number that identifies the value's memory. An argument and the
/// result that is written to the argument's buffer have the same number.
static int64_t placeOf(Value value, const ActionPlan &memory) {
  int64_t storage = memory.placeOf(value).storage;
  int64_t boundary = memory.storages[storage].boundary;
  return boundary >= 0 ? ~boundary : storage;
}

/// Calls `fn` for each storage that an operation overwrites. No operation after
/// it reads the old value.
static void forEachWrite(Operation *op, const ActionPlan &memory,
                         llvm::function_ref<void(int64_t)> fn) {
  auto command = dyn_cast<rt::CommandOpInterface>(op);
  if (!command)
    return;
  for (OpOperand &operand : op->getOpOperands())
    if (isa<RankedTensorType>(operand.get().getType()) && overwrites(operand))
      fn(placeOf(operand.get(), memory));
  for (OpResult result : op->getResults())
    if (isa<RankedTensorType>(result.getType()) &&
        !command.getAlias(result.getResultNumber()))
      if (int64_t place = placeOf(result, memory); place < 0)
        fn(place);
}

std::vector<Placed> Action::list(const OverlapPlan &plan,
                                 const ActionPlan &memory) const {
  std::vector<Placed> list(positionOf.size());
  struct Accesses {
    SmallVector<size_t> readers;
    std::optional<size_t> writer;
  };
  llvm::DenseMap<int64_t, Accesses> accesses; // by place
  for (Operation &op : block) {
    size_t at = positionOf.at(&op);
    Placed &placed = list[at];
    auto follow = [&](size_t other) {
      if (other != at && !llvm::is_contained(placed.after, other)) {
        placed.after.push_back(other);
        list[other].before.push_back(at);
      }
    };
    if (auto step = stepOf.find(&op); step != stepOf.end() && &op != end)
      placed.seconds = isMovable(&op) ? 0 : steps[step->second].seconds;
    // A conditional command refers to its rt.condition only by an attribute,
    // not by an operand, so it is not moved.
    placed.moves = isa<rt::CommandOpInterface>(op) && op.getNumResults() > 0 &&
                   !isPinned(&op) && !op.hasAttr(kWhenAttrName) &&
                   (isMovable(&op) || !isa<rt::CollectiveOp, rt::WaitOp>(op));
    for (Value operand : op.getOperands())
      if (Operation *def = operand.getDefiningOp())
        follow(positionOf.at(def));
    // If a command overwrites a value, operations that read the old or the new
    // content are not moved across this command.
    for (Value operand : op.getOperands()) {
      if (!isa<RankedTensorType>(operand.getType()))
        continue;
      Accesses &known = accesses[placeOf(operand, memory)];
      if (known.writer)
        follow(*known.writer);
      known.readers.push_back(at);
    }
    forEachWrite(&op, memory, [&](int64_t place) {
      Accesses &known = accesses[place];
      for (size_t reader : known.readers)
        follow(reader);
      known.readers = {at};
      known.writer = at;
    });
  }
  // A command is not moved away if it already overlaps a collective that cannot
  // start earlier.
  SmallVector<size_t> starts(transfers.size());
  for (const OverlapPlan::Event &event : plan.events)
    if (event.starts)
      starts[event.transfer] = event.step;
  for (auto [start, transfer] : llvm::zip_equal(starts, transfers)) {
    if (transfer.pinned)
      start = transfer.place;
    if (transfer.need == steps.size() || start != transfer.ready || start == 0)
      continue;
    double left = transfer.seconds;
    for (size_t step = start; step < transfer.need && left > 0; ++step) {
      left -= steps[step].seconds;
      list[positionOf.at(ops[step])].fills |= steps[step].seconds > 0;
    }
  }
  return list;
}

bool Action::fillWaits(const OverlapPlan &plan, const ActionPlan &memory) {
  std::vector<Wait> waits;
  for (const OverlapPlan::Wait &wait : plan.waits)
    if (wait.step < ops.size() && !ops[wait.step]->hasAttr(kWhenAttrName))
      waits.push_back({size_t(positionOf[collectives[wait.transfer]]),
                       size_t(positionOf[ops[wait.step]]), wait.seconds});
  std::vector<size_t> order = schedule::fillWaits(list(plan, memory), waits);
  if (llvm::is_sorted(order))
    return false;
  SmallVector<Operation *> before;
  for (Operation &op : block)
    before.push_back(&op);
  for (size_t place : order)
    if (before[place] != end)
      before[place]->moveBefore(end);
  sinkViews(block);
  return true;
}

void Action::apply(const OverlapPlan &plan) {
  std::vector<size_t> starts(transfers.size());
  std::vector<bool> apart(transfers.size());
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
