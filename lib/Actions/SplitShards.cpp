// pipe-split-shards: moves the all-gathers of parameters and the reductions of
// gradients of data parallelism into functions of their own, which are separate
// actions of the pipeline schedule.

#include "Cutter.h"
#include "cleave/Actions/Passes.h"
#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Dialect/Pipe/IR/Pipe.h"
#include "cleave/Interfaces/ProgramWalk.h"
#include "cleave/Interfaces/StageAttrs.h"

#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SetVector.h"

namespace cleave {
#define GEN_PASS_DEF_SPLITSHARDSPASS
#include "cleave/Actions/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::actions;

namespace {

struct SplitShardsPass : cleave::impl::SplitShardsPassBase<SplitShardsPass> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (auto grad = module.lookupSymbol<func::FuncOp>(nn::kLossGradFunc);
        grad && !grad.isExternal() && unshard)
      split(grad, kUnshardFunc, "gathered", kGatheredSlot,
            collectivesOf(
                grad,
                [](std::optional<Role> role) {
                  return isOneOf(
                      role, {Role::Parameter, Role::Buffer, Role::Constant});
                },
                [&](dist::CollectiveOpInterface gather) {
                  return llvm::all_of(
                      gather.getAxes().getAxes(), [&](dist::AxisRefAttr axis) {
                        return llvm::is_contained(axes, axis.getName());
                      });
                }));
    if (auto update = module.lookupSymbol<func::FuncOp>(nn::kUpdateFunc);
        update && !update.isExternal() && reduce)
      split(update, kReduceGradFunc, "reduced", kReducedSlot,
            collectivesOf(
                update,
                [](std::optional<Role> role) { return role == Role::Gradient; },
                [](dist::CollectiveOpInterface sum) {
                  return sum.getPurpose() == dist::Purpose::Gradient;
                }));
  }

  /// Returns the collectives that `fits` accepts and that depend only on
  /// arguments whose role `isRoot` accepts, together with the operations that
  /// these collectives depend on.
  static llvm::DenseSet<Operation *>
  collectivesOf(func::FuncOp func,
                llvm::function_ref<bool(std::optional<Role>)> isRoot,
                llvm::function_ref<bool(dist::CollectiveOpInterface)> fits) {
    Block &block = actionBody(func);
    llvm::DenseSet<Operation *> alone, chosen;
    auto readsOf = [](Operation *op) {
      llvm::SetVector<Value> read(op->operand_begin(), op->operand_end());
      getUsedValuesDefinedAbove(op->getRegions(), read);
      return read;
    };
    auto depends = [&](Value value) {
      if (auto argument = dyn_cast<BlockArgument>(value))
        return isRoot(roleOf(func.getArgAttrDict(argument.getArgNumber())));
      return Cutter::isFree(value) || alone.contains(value.getDefiningOp());
    };
    for (Operation &op : block.without_terminator())
      // `alone` has the operations that depend only on arguments with such a
      // role. A pipe.sum_stages is never among them, because it also depends on
      // values of other stages.
      if (!isa<pipe::SumStagesOp>(op) && !readsOf(&op).empty() &&
          llvm::all_of(readsOf(&op), depends))
        alone.insert(&op);
    SmallVector<Operation *> worklist;
    for (Operation &op : block.without_terminator())
      if (auto collective = dyn_cast<dist::CollectiveOpInterface>(op);
          collective && alone.contains(&op) && fits(collective))
        worklist.push_back(&op);
    while (!worklist.empty()) {
      Operation *op = worklist.pop_back_val();
      if (op && chosen.insert(op).second)
        for (Value value : readsOf(op))
          worklist.push_back(value.getDefiningOp());
    }
    return chosen;
  }

  /// Moves the operations `chosen` into a separate function `name`. The
  /// attribute pipe.slot of its results becomes `slot`, which states how long
  /// they are stored for `func` to read them.
  void split(func::FuncOp func, StringRef name, StringRef prefix,
             StringRef slot, const llvm::DenseSet<Operation *> &chosen) {
    if (chosen.empty())
      return;
    Block &block = actionBody(func);
    DenseMap<Operation *, unsigned> parts;
    for (Operation &op : block.without_terminator()) {
      parts[&op] = !chosen.contains(&op);
      op.removeAttr(kActionAttr);
    }
    Cutter cutter(func, parts, 2);
    for (auto [index, value] :
         llvm::enumerate(block.getTerminator()->getOperands()))
      cutter.results[1].push_back({value, func.getResultAttrDict(index)});
    cutter.analyze(prefix);
    for (auto &[value, entry] : cutter.kept)
      if (entry.first == 0)
        entry.attrs.set(
            pipe::kSlotAttr,
            pipe::SlotAttr::get(&getContext(),
                                StringAttr::get(&getContext(), slot)));
    cutter.build({name.str(), func.getName().str()});
  }
};

} // namespace
