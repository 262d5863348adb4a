// rt-plan-memory: assigns an address to every value of the command lists.

#include "cleave/Interfaces/BoundaryAttrs.h"
#include "cleave/Memory/ActionPlan.h"
#include "cleave/Memory/Passes.h"

namespace cleave {
#define GEN_PASS_DEF_PLANMEMORYPASS
#include "cleave/Memory/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::memory;

namespace {
struct PlanMemoryPass : cleave::impl::PlanMemoryPassBase<PlanMemoryPass> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    Builder b(module);
    SmallVector<Attribute> planned;
    for (int64_t stage : stagesOf(module)) {
      arenas.assign(rt::kSlotArena, 0);
      slots.clear();
      if (failed(plan(module, stage)))
        return signalPassFailure();
      if (stage < 0 && slots.empty()) {
        module->setAttr(rt::kArenasAttr, b.getDenseI64ArrayAttr(arenas));
        return;
      }
      planned.push_back(rt::StageAttr::get(b.getContext(),
                                           b.getDenseI64ArrayAttr(arenas),
                                           b.getStrArrayAttr(slots)));
    }
    module->setAttr(rt::kStagesAttr, b.getArrayAttr(planned));
  }

  /// The sizes of the arenas, and the slot class of each arena that consists of
  /// slots.
  SmallVector<int64_t> arenas;
  SmallVector<StringRef> slots;

  int64_t arenaOf(const BoundaryBuffer &buffer) {
    StringRef slot = buffer.slot();
    if (slot.empty())
      return rt::kStateArena;
    int64_t index = llvm::find(slots, slot) - slots.begin();
    if (index == int64_t(slots.size())) {
      slots.push_back(slot);
      arenas.push_back(0);
    }
    return rt::kSlotArena + index;
  }

  LogicalResult plan(ModuleOp module, int64_t stage) {
    FailureOr<BoundaryTable> table = BoundaryTable::collect(module, stage);
    if (failed(table))
      return failure();
    std::vector<ActionPlan> plans;
    for (func::FuncOp func : actionsOf(module, stage)) {
      FailureOr<ActionPlan> plan = ActionPlan::create(func, *table);
      if (failed(plan))
        return failure();
      for (const Storage &storage : plan->storages)
        if (storage.boundary >= 0) {
          int64_t &bytes = table->buffers[storage.boundary].bytes;
          bytes = std::max(bytes, storage.bytes);
        }
      plans.push_back(std::move(*plan));
    }
    for (BoundaryBuffer &buffer : table->buffers) {
      int64_t arena = arenaOf(buffer);
      buffer.offset = arenas[arena];
      arenas[arena] += alignUp(buffer.bytes);
    }
    int64_t &transient = arenas[rt::kTransientArena];
    for (ActionPlan &plan : plans) {
      transient = std::max(transient, plan.pack());
      annotate(plan, *table);
    }
    return success();
  }

  void annotate(ActionPlan &plan, const BoundaryTable &table) {
    Builder b(&getContext());
    func::FuncOp func = plan.func;
    auto in = [&](int64_t arena, int64_t offset) {
      return rt::AddressAttr::get(&getContext(), arena, offset);
    };
    auto address = [&](Value value) -> rt::AddressAttr {
      Place place = plan.placeOf(value);
      const Storage &storage = plan.storages[place.storage];
      if (storage.boundary < 0)
        return in(rt::kTransientArena, storage.offset + place.offset);
      const BoundaryBuffer &buffer = table.buffers[storage.boundary];
      return in(arenaOf(buffer), buffer.offset + place.offset);
    };
    BoundaryAttrs boundary(func);
    for (BlockArgument argument : func.getArguments())
      boundary.setArgument(argument.getArgNumber(), rt::kBufferAttr,
                           address(argument));
    for (unsigned i = 0; i < func.getNumResults(); ++i) {
      const BoundaryBuffer &buffer = table.buffers[table.ofResult(func, i)];
      boundary.setResult(i, rt::kBufferAttr,
                         in(arenaOf(buffer), buffer.offset));
    }
    boundary.apply();
    for (Operation &op : actionBody(func)) {
      SmallVector<Attribute> buffers;
      for (Value result : op.getResults()) {
        bool isToken = !isa<RankedTensorType>(result.getType());
        buffers.push_back(isToken ? Attribute(b.getUnitAttr())
                                  : address(result));
      }
      if (!buffers.empty())
        op.setAttr(rt::kBuffersAttr, b.getArrayAttr(buffers));
    }
    SmallVector<Attribute> lifetimes;
    int64_t commands = plan.numCommands();
    for (auto [index, storage] : llvm::enumerate(plan.storages)) {
      if (!plan.isRoot(index) || storage.boundary >= 0 || storage.bytes == 0)
        continue;
      // If only a view after the last command reads the value, its lifetime
      // ends with the last command.
      int64_t last = plan.commandAt(storage.last);
      lifetimes.push_back(rt::LifetimeAttr::get(
          b.getContext(), b.getStringAttr(storage.name),
          b.getStringAttr(storage.scratch ? "workspace" : "activation"),
          plan.commandAt(storage.first), std::min(last, commands - 1),
          storage.offset, storage.bytes));
    }
    func->setAttr(rt::kLifetimesAttr, b.getArrayAttr(lifetimes));
  }
};
} // namespace
