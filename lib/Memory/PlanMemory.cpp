// rt-plan-memory: assigns an address to every value of the command lists.

#include "cleave/Interfaces/BoundaryAttrs.h"
#include "cleave/Interfaces/Interfaces.h"
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
    bodies.clear();
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

  /// The sizes of the arenas. A value that one action of the pipeline schedule
  /// stores for later actions has an attribute `pipe.slot` and usually a copy
  /// for each microbatch in flight. Values with equal attributes share an
  /// arena, from rt::kSlotArena on; its size here is that for one microbatch.
  /// `slots` has the text of the attribute for each of these arenas.
  SmallVector<int64_t> arenas;
  SmallVector<StringRef> slots;

  /// The bodies of the loops that have been planned.
  llvm::DenseSet<Operation *> bodies;

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

  /// The body of a loop. Its transient values are in the scratch memory of the
  /// rt.repeat.
  struct LoopPlan {
    rt::RepeatOp repeat;
    BoundaryTable table;
    ActionPlan plan;
    std::vector<LoopPlan> inner;
  };

  LogicalResult plan(ModuleOp module, int64_t stage) {
    FailureOr<BoundaryTable> table = BoundaryTable::collect(module, stage);
    if (failed(table))
      return failure();
    std::vector<ActionPlan> plans;
    std::vector<std::vector<LoopPlan>> loops;
    for (func::FuncOp func : actionsOf(module, stage)) {
      FailureOr<std::vector<LoopPlan>> inner = planLoops(func);
      if (failed(inner))
        return failure();
      FailureOr<ActionPlan> plan = ActionPlan::create(func, *table);
      if (failed(plan))
        return failure();
      for (const Storage &storage : plan->storages)
        if (storage.boundary >= 0) {
          int64_t &bytes = table->buffers[storage.boundary].bytes;
          bytes = std::max(bytes, storage.bytes);
        }
      plans.push_back(std::move(*plan));
      loops.push_back(std::move(*inner));
    }
    for (BoundaryBuffer &buffer : table->buffers) {
      int64_t arena = arenaOf(buffer);
      buffer.offset = arenas[arena];
      arenas[arena] += alignUp(buffer.bytes);
    }
    int64_t &transient = arenas[rt::kTransientArena];
    for (auto [plan, inner] : llvm::zip_equal(plans, loops)) {
      transient = std::max(transient, plan.pack());
      annotate(plan, *table, inner);
    }
    return success();
  }

  rt::AddressAttr in(int64_t arena, int64_t offset) {
    return rt::AddressAttr::get(&getContext(), arena, offset);
  }

  void annotate(ActionPlan &plan, const BoundaryTable &table,
                ArrayRef<LoopPlan> loops) {
    auto address = [&](const BoundaryBuffer &buffer) {
      return in(arenaOf(buffer), buffer.offset);
    };
    annotate(plan, in(rt::kTransientArena, 0), table,
             llvm::map_to_vector(table.buffers, address), loops, 0);
  }

  /// Sets the addresses of the values of one function. Its transient values
  /// begin at `base`. `table` lists the buffers of the functions' arguments and
  /// results, and `ports` has the address of each buffer, in the same order.
  void annotate(ActionPlan &plan, rt::AddressAttr base,
                const BoundaryTable &table, ArrayRef<rt::AddressAttr> ports,
                ArrayRef<LoopPlan> loops, int64_t depth) {
    Builder b(&getContext());
    func::FuncOp func = plan.func;
    auto address = [&](Value value) -> rt::AddressAttr {
      Place place = plan.placeOf(value);
      const Storage &storage = plan.storages[place.storage];
      return storage.boundary < 0
                 ? shifted(base, storage.offset + place.offset)
                 : shifted(ports[storage.boundary], place.offset);
    };
    BoundaryAttrs boundary(func);
    for (BlockArgument argument : func.getArguments())
      boundary.setArgument(argument.getArgNumber(), rt::kBufferAttr,
                           address(argument));
    for (unsigned i = 0; i < func.getNumResults(); ++i)
      boundary.setResult(i, rt::kBufferAttr, ports[table.ofResult(func, i)]);
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
      // The last operation that reads the value may be a view after the last
      // command. Then the lifetime of the value ends with the last command.
      int64_t last = plan.commandAt(storage.last);
      lifetimes.push_back(rt::LifetimeAttr::get(
          b.getContext(), b.getStringAttr(storage.name),
          b.getStringAttr(storage.scratch ? "workspace" : "activation"),
          plan.commandAt(storage.first), std::min(last, commands - 1),
          base.getOffset() + storage.offset, storage.bytes));
    }
    func->setAttr(rt::kLifetimesAttr, b.getArrayAttr(lifetimes));
    for (const LoopPlan &loop : loops)
      annotateLoop(loop, address, depth);
  }

  //===--------------------------------------------------------------------===//
  // Loops
  //===--------------------------------------------------------------------===//

  /// Plans the bodies of the loops of a function, and gives each loop scratch
  /// memory for the values of one iteration.
  FailureOr<std::vector<LoopPlan>> planLoops(func::FuncOp func) {
    std::vector<LoopPlan> loops;
    for (auto repeat : SmallVector<rt::RepeatOp>(func.getOps<rt::RepeatOp>())) {
      auto body = cast<func::FuncOp>(repeat.lookupBody().getOperation());
      if (!bodies.insert(body).second)
        return repeat.emitOpError("runs ")
               << repeat.getBodyAttr()
               << ", which another command runs too; expected a body of its "
                  "own, whose values have addresses in the memory of one "
                  "command";
      FailureOr<std::vector<LoopPlan>> inner = planLoops(body);
      FailureOr<BoundaryTable> table = BoundaryTable::ofBody(body);
      if (failed(inner) || failed(table))
        return failure();
      FailureOr<ActionPlan> plan = ActionPlan::create(body, *table);
      if (failed(plan))
        return failure();
      if (int64_t bytes = plan->pack())
        repeat = withScratch(repeat, bytes);
      loops.push_back(
          {repeat, std::move(*table), std::move(*plan), std::move(*inner)});
    }
    return loops;
  }

  static rt::RepeatOp withScratch(rt::RepeatOp repeat, int64_t bytes) {
    OpBuilder b(repeat);
    SmallVector<Type> types(repeat.getResultTypes());
    types.push_back(RankedTensorType::get({bytes}, b.getI8Type()));
    auto wide = rt::RepeatOp::create(
        b, repeat.getLoc(), types, repeat.getBody(), repeat.getPairs(),
        repeat.getSlices(), repeat.getCaptures(), repeat.getTrips(),
        repeat.getReverse(), /*has_scratch=*/true);
    wide->setDiscardableAttrs(repeat->getDiscardableAttrDictionary());
    repeat->replaceAllUsesWith(wide->getResults().drop_back());
    repeat.erase();
    return wide;
  }

  rt::AddressAttr shifted(rt::AddressAttr address, int64_t bytes) {
    return rt::AddressAttr::get(&getContext(), address.getArena(),
                                address.getOffset() + bytes,
                                address.getTrips());
  }

  /// Returns `address` with a term that depends on the iteration of the loop at
  /// nesting depth `depth`: iteration i adds (i mod `period`) * `bytes`.
  rt::AddressAttr moving(rt::AddressAttr address, int64_t depth, int64_t period,
                         int64_t bytes) {
    if (period == 1)
      return address;
    SmallVector<int64_t> trips;
    if (address.getTrips())
      llvm::append_range(trips, address.getTrips().asArrayRef());
    trips.append({depth, period, bytes});
    return rt::AddressAttr::get(&getContext(), address.getArena(),
                                address.getOffset(),
                                DenseI64ArrayAttr::get(&getContext(), trips));
  }

  /// Sets the addresses of the body of a loop. `outside` returns the address of
  /// a value of the function that runs the loop.
  void annotateLoop(const LoopPlan &loop,
                    llvm::function_ref<rt::AddressAttr(Value)> outside,
                    int64_t depth) {
    rt::RepeatOp repeat = loop.repeat;
    func::FuncOp body = loop.plan.func;
    int64_t trips = repeat.getTrips();
    SmallVector<rt::AddressAttr> ports(loop.table.buffers.size());
    auto argument = [&](unsigned index) -> rt::AddressAttr & {
      return ports[loop.table.ofArgument(body, index)];
    };
    auto result = [&](unsigned index) -> rt::AddressAttr & {
      return ports[loop.table.ofResult(body, index)];
    };
    auto elementOf = [&](Value whole) {
      int64_t bytes = bytesOf(whole.getType()) / trips;
      rt::AddressAttr first = outside(whole);
      return repeat.getReverse() ? moving(shifted(first, (trips - 1) * bytes),
                                          depth, trips, -bytes)
                                 : moving(first, depth, trips, bytes);
    };
    unsigned pairs = repeat.getPairs().size(),
             slices = repeat.getSlices().size();
    for (unsigned index = 0; index < pairs; ++index) {
      Value pair = repeat.getResult(index);
      int64_t bytes = bytesOf(pair.getType()) / 2;
      int64_t period = std::min<int64_t>(trips, 2);
      argument(index) =
          moving(shifted(outside(pair), bytes), depth, period, -bytes);
      result(index) = moving(outside(pair), depth, period, bytes);
    }
    for (auto [index, slice] : llvm::enumerate(repeat.getSlices()))
      argument(pairs + index) = elementOf(slice);
    for (auto [index, capture] : llvm::enumerate(repeat.getCaptures()))
      argument(pairs + slices + index) = outside(capture);
    for (auto [index, stacked] : llvm::enumerate(repeat.getStacked()))
      result(pairs + index) = elementOf(stacked);
    Value scratch = repeat.getScratchResult();
    ActionPlan plan = loop.plan;
    annotate(plan, scratch ? outside(scratch) : in(rt::kTransientArena, 0),
             loop.table, ports, loop.inner, depth + 1);
  }
};
} // namespace
