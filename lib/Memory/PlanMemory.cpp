// rt-plan-memory: every value of the command lists gets an address.

#include "ActionPlan.h"
#include "cleave/Interfaces/BoundaryAttrs.h"
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
    FailureOr<BoundaryTable> table = BoundaryTable::collect(module);
    if (failed(table))
      return signalPassFailure();
    std::vector<ActionPlan> plans;
    for (func::FuncOp func : actionsOf(module)) {
      FailureOr<ActionPlan> plan = ActionPlan::create(func, *table);
      if (failed(plan))
        return signalPassFailure();
      for (const Storage &storage : plan->storages)
        if (storage.boundary >= 0) {
          int64_t &bytes = table->buffers[storage.boundary].bytes;
          bytes = std::max(bytes, storage.bytes);
        }
      plans.push_back(std::move(*plan));
    }
    int64_t state = 0, transient = 0;
    for (BoundaryBuffer &buffer : table->buffers) {
      buffer.offset = state;
      state += alignUp(buffer.bytes);
    }
    for (ActionPlan &plan : plans) {
      transient = std::max(transient, plan.pack());
      annotate(plan, *table);
    }
    Builder b(module);
    module->setAttr(rt::kArenasAttr,
                    b.getDenseI64ArrayAttr({state, transient}));
  }

  void annotate(ActionPlan &plan, const BoundaryTable &table) {
    Builder b(&getContext());
    func::FuncOp func = plan.func;
    auto address = [&](Value value) -> std::pair<int64_t, int64_t> {
      Place place = plan.placeOf(value);
      const Storage &storage = plan.storages[place.storage];
      if (storage.boundary >= 0)
        return {rt::kStateArena,
                table.buffers[storage.boundary].offset + place.offset};
      return {rt::kTransientArena, storage.offset + place.offset};
    };
    auto pair = [&](std::pair<int64_t, int64_t> where) {
      return b.getDenseI64ArrayAttr({where.first, where.second});
    };
    BoundaryAttrs boundary(func);
    for (BlockArgument argument : func.getArguments())
      boundary.setArgument(argument.getArgNumber(), rt::kBufferAttr,
                           pair(address(argument)));
    for (unsigned i = 0; i < func.getNumResults(); ++i)
      boundary.setResult(i, rt::kBufferAttr,
                         pair({rt::kStateArena,
                               table.buffers[table.ofResult(func, i)].offset}));
    boundary.apply();
    for (Operation &op : func.getBody().front()) {
      SmallVector<int64_t> buffers;
      for (Value result : op.getResults()) {
        // A token has no address.
        std::pair<int64_t, int64_t> where = {-1, 0};
        if (isa<RankedTensorType>(result.getType()))
          where = address(result);
        buffers.append({where.first, where.second});
      }
      if (!buffers.empty())
        op.setAttr(rt::kBuffersAttr, b.getDenseI64ArrayAttr(buffers));
    }
    SmallVector<Attribute> lifetimes;
    int64_t commands = plan.numCommands();
    for (auto [index, storage] : llvm::enumerate(plan.storages)) {
      if (!plan.isRoot(index) || storage.boundary >= 0 || storage.bytes == 0)
        continue;
      // A value that only a view's position reads dies with the command before.
      int64_t last = plan.commandAt(storage.last);
      lifetimes.push_back(b.getDictionaryAttr({
          b.getNamedAttr("first",
                         b.getI64IntegerAttr(plan.commandAt(storage.first))),
          b.getNamedAttr(
              "kind",
              b.getStringAttr(storage.scratch ? "workspace" : "activation")),
          b.getNamedAttr("last",
                         b.getI64IntegerAttr(std::min(last, commands - 1))),
          b.getNamedAttr("name", b.getStringAttr(storage.name)),
          b.getNamedAttr("offset", b.getI64IntegerAttr(storage.offset)),
          b.getNamedAttr("size", b.getI64IntegerAttr(storage.bytes)),
      }));
    }
    func->setAttr(rt::kLifetimesAttr, b.getArrayAttr(lifetimes));
  }
};
} // namespace
