//===- ChooseResiduals.cpp - nn-choose-residuals --------------------------===//
//
// Decides how long gathered values are kept, on per-rank programs. A sharded
// parameter is gathered before its readers in the forward pass. It is gathered
// again before its readers in the backward pass, unless the configuration keeps
// the gathered value.
//
// The forward pass consists of the operations on which saved values, and
// results other than gradients and cotangents, depend. All other operations are
// the backward pass.
//
//===----------------------------------------------------------------------===//

#include "cleave/Interfaces/Interfaces.h"
#include "cleave/Partition/Passes.h"
#include "cleave/Partition/Utils/PortTable.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SetVector.h"

namespace cleave {
#define GEN_PASS_DEF_CHOOSERESIDUALSPASS
#include "cleave/Partition/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

namespace {

bool isView(Operation *op) {
  auto lowering = dyn_cast<LoweringInterface>(op);
  return lowering && lowering.getKernelClass() == KernelClass::View;
}

/// Decides, for one function, how long gathered values stay in memory.
class Residencies {
public:
  Residencies(func::FuncOp func, ArrayRef<std::string> keepParameters,
              ArrayRef<std::string> keepActivations)
      : func(func), block(func.getBody().front()),
        keepParameters(keepParameters), keepActivations(keepActivations) {
    for (auto [index, op] : llvm::enumerate(block))
      position[&op] = index;
    findForward();
  }

  void run() {
    for (BlockArgument argument : func.getArguments()) {
      if (nn::isOneOf(nn::roleOf(argument),
                      {nn::Role::Parameter, nn::Role::Constant}))
        place(argument);
    }
    if (!keepActivations.empty())
      saveGathered();
  }

private:
  void findForward() {
    SmallVector<Operation *> worklist;
    auto need = [&](Operation *op) {
      if (op && forward.insert(op).second)
        worklist.push_back(op);
    };
    func.walk([&](nn::SaveOp save) { need(inBlock(save)); });
    for (OpOperand &operand : block.getTerminator()->getOpOperands())
      if (!nn::isOneOf(nn::resultRoleOf(func, operand.getOperandNumber()),
                       {nn::Role::Gradient, nn::Role::Cotangent}))
        need(operand.get().getDefiningOp());
    while (!worklist.empty()) {
      Operation *op = worklist.pop_back_val();
      llvm::SetVector<Value> read(op->operand_begin(), op->operand_end());
      getUsedValuesDefinedAbove(op->getRegions(), read);
      for (Value operand : read)
        need(operand.getDefiningOp());
    }
  }

  /// Returns the operation directly in the function body that is `op` or
  /// contains it (a loop or branch).
  Operation *inBlock(Operation *op) { return block.findAncestorOpInBlock(*op); }

  static bool within(AxisListAttr axes, ArrayRef<std::string> names) {
    return llvm::all_of(axes.getAxes(), [&](AxisRefAttr axis) {
      return llvm::is_contained(names, axis.getName());
    });
  }

  //===--------------------------------------------------------------------===//
  // Parameters
  //===--------------------------------------------------------------------===//

  /// A reader of the gathered parameter: an operation that uses it other than
  /// an all-gather or a view, and its position in the function body.
  struct Reader {
    OpOperand *use;
    unsigned position;
  };

  /// Collects the readers of `value`, looking through all-gathers and views.
  /// Only readers after an all-gather count. `chain` receives the all-gathers
  /// and views between `value` and its readers.
  void collect(Value value, bool gathered, SmallVectorImpl<Reader> &readers,
               llvm::SetVector<Operation *> &chain) {
    for (OpOperand &use : value.getUses()) {
      Operation *op = use.getOwner();
      auto gather = dyn_cast<AllGatherOp>(op);
      bool isPlacement = op->getNumOperands() == 1 && (gather || isView(op));
      if (isPlacement) {
        chain.insert(op);
        if (gather && !within(gather.getAxes(), keepParameters))
          again = true;
        collect(op->getResult(0), gathered || gather, readers, chain);
      } else if (gathered) {
        readers.push_back({&use, position.lookup(inBlock(op))});
      }
    }
  }

  void place(BlockArgument parameter) {
    SmallVector<Reader> readers;
    llvm::SetVector<Operation *> chain;
    again = false;
    collect(parameter, false, readers, chain);
    if (readers.empty())
      return;
    llvm::sort(readers, [](const Reader &a, const Reader &b) {
      return std::pair(a.position, a.use->getOperandNumber()) <
             std::pair(b.position, b.use->getOperandNumber());
    });
    auto isForward = [&](const Reader &reader) {
      return forward.contains(inBlock(reader.use->getOwner()));
    };
    // The gathers are placed next to their readers. If the parameter is
    // gathered twice, readers before the longest gap between two readers use
    // the first gather, and readers after the gap use the second gather.
    size_t second = readers.size();
    if (again && llvm::any_of(readers, isForward) &&
        !llvm::all_of(readers, isForward)) {
      unsigned longest = 0;
      for (size_t i = 1; i < readers.size(); ++i)
        if (unsigned gap = readers[i].position - readers[i - 1].position;
            gap > longest) {
          longest = gap;
          second = i;
        }
    }
    made.clear();
    gather(parameter, ArrayRef(readers).take_front(second), chain,
           /*barrier=*/false);
    gather(parameter, ArrayRef(readers).drop_front(second), chain,
           /*barrier=*/true);
    for (Operation *op : llvm::reverse(chain))
      if (op->use_empty())
        op->erase();
  }

  /// Clones the all-gathers and views between the parameter and `readers`,
  /// right before the first of these readers (or the loop or branch that
  /// contains it). Values that the first gather made and that are saved are
  /// reused.
  void gather(Value parameter, ArrayRef<Reader> readers,
              const llvm::SetVector<Operation *> &chain, bool barrier) {
    if (readers.empty())
      return;
    Operation *first = inBlock(readers.front().use->getOwner());
    OpBuilder builder(first);
    IRMapping mapping;
    Value after = barrier ? lastBefore(first, chain) : Value();
    auto again = [&](Value value) -> Value {
      if (!after)
        return value;
      return nn::RematerializeOp::create(builder, value.getLoc(), value, after);
    };
    auto remake = [&](auto &&self, Value value) -> Value {
      if (Value known = mapping.lookupOrNull(value))
        return known;
      Operation *def = value.getDefiningOp();
      Value base = def ? made.lookupOrNull(value) : value;
      if (base && (!def || isKept(value))) {
        mapping.map(value, again(base));
      } else {
        self(self, def->getOperand(0));
        builder.clone(*def, mapping);
      }
      return mapping.lookup(value);
    };
    for (const Reader &reader : readers) {
      Value value = reader.use->get(), kept = made.lookupOrNull(value);
      reader.use->set(kept && isKept(value) ? kept : remake(remake, value));
    }
    if (!barrier)
      made = std::move(mapping);
  }

  /// Returns whether the value was gathered, and only over axes for which the
  /// configuration keeps gathered values for the backward pass.
  bool isKept(Value value) const {
    bool gathered = false;
    for (Operation *op = value.getDefiningOp(); op;
         op = op->getOperand(0).getDefiningOp())
      if (auto gather = dyn_cast<AllGatherOp>(op)) {
        if (!within(gather.getAxes(), keepParameters))
          return false;
        gathered = true;
      }
    return gathered;
  }

  /// If a parameter is gathered again for the backward pass, the second gather
  /// must not run early, which would keep the gathered value in memory. So it
  /// waits for a value. Returns one that is computed as late as possible before
  /// `op`, the first reader of the second gather.
  Value lastBefore(Operation *op,
                   const llvm::SetVector<Operation *> &chain) const {
    auto fits = [&](Value value) {
      Operation *def = value.getDefiningOp();
      return def && def->getNumOperands() != 0 && !chain.contains(def) &&
             !isView(def) &&
             !isa<nn::SaveOp, nn::RematerializeOp, AllGatherOp>(def) &&
             isa<RankedTensorType>(value.getType());
    };
    for (Value operand : op->getOperands())
      if (fits(operand))
        return operand;
    for (Operation *before = op->getPrevNode(); before;
         before = before->getPrevNode())
      for (Value result : before->getResults())
        if (fits(result))
          return result;
    return {};
  }

  //===--------------------------------------------------------------------===//
  // Activations
  //===--------------------------------------------------------------------===//

  /// Saves the value gathered in the forward pass instead of its tile, if the
  /// backward pass would otherwise gather the tile again.
  void saveGathered() {
    llvm::DenseMap<std::pair<Value, Attribute>, AllGatherOp> known;
    for (auto gather :
         llvm::make_early_inc_range(block.getOps<AllGatherOp>())) {
      if (gather.getNumOperands() != 1 ||
          !within(gather.getAxes(), keepActivations))
        continue;
      Value input = gather.getInputs()[0];
      auto save = input.getDefiningOp<nn::SaveOp>();
      if (!save) {
        known.insert({{input, gather->getAttrDictionary()}, gather});
        continue;
      }
      AllGatherOp first =
          known.lookup({save.getInput(), gather->getAttrDictionary()});
      if (!first)
        continue;
      OpBuilder builder(first);
      builder.setInsertionPointAfter(first);
      gather->getResult(0).replaceAllUsesWith(
          nn::SaveOp::create(builder, save.getLoc(), first->getResult(0)));
      gather.erase();
      if (save->use_empty())
        save.erase();
    }
  }

  func::FuncOp func;
  Block &block;
  ArrayRef<std::string> keepParameters, keepActivations;
  llvm::DenseMap<Operation *, unsigned> position;
  llvm::DenseSet<Operation *> forward;
  /// Maps each result of the original all-gathers and views of the current
  /// parameter to the result of the clone. If the parameter is gathered twice,
  /// these are the clones for the earlier readers.
  IRMapping made;
  /// Whether the current parameter is gathered again in the backward pass.
  bool again = false;
};

struct ChooseResidualsPass
    : cleave::impl::ChooseResidualsPassBase<ChooseResidualsPass> {
  using Base::Base;

  void runOnOperation() override {
    for (auto func : getOperation().getOps<func::FuncOp>())
      if (!func.isExternal())
        Residencies(func, llvm::to_vector(keepParameters),
                    llvm::to_vector(keepActivations))
            .run();
  }
};

} // namespace
