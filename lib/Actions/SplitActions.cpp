// pipe-split-actions: splits the functions of a stage into the actions of a
// schedule.

#include "Cutter.h"
#include "SplitUpdate.h"
#include "cleave/Actions/Passes.h"
#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Dialect/Pipe/IR/Pipe.h"
#include "cleave/Interfaces/BoundaryAttrs.h"
#include "cleave/Interfaces/Condition.h"
#include "cleave/Interfaces/ProgramWalk.h"
#include "cleave/Interfaces/StageAttrs.h"

#include "mlir/IR/SymbolTable.h"

#include <map>

namespace cleave {
#define GEN_PASS_DEF_SPLITACTIONSPASS
#include "cleave/Actions/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::actions;

namespace {

struct SplitActionsPass : cleave::impl::SplitActionsPassBase<SplitActionsPass> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (auto grad = module.lookupSymbol<func::FuncOp>(nn::kLossGradFunc);
        grad && !grad.isExternal())
      splitGradients(grad);
    if (auto update = module.lookupSymbol<func::FuncOp>(nn::kUpdateFunc);
        update && !update.isExternal())
      splitUpdate(update, chained);
    for (StringRef name : {nn::kLossFunc, nn::kForwardFunc})
      if (auto func = module.lookupSymbol<func::FuncOp>(name))
        keepActivations(func);
    if (versions)
      for (auto func : module.getOps<func::FuncOp>())
        keepVersions(func);
  }

  StringAttr text(const Twine &value) {
    return StringAttr::get(&getContext(), value);
  }

  pipe::SlotAttr slotAttr(const Twine &value) {
    return actions::slotAttr(&getContext(), value);
  }

  //===--------------------------------------------------------------------===//
  // @loss_grad
  //===--------------------------------------------------------------------===//

  void splitGradients(func::FuncOp func) {
    DenseMap<Operation *, unsigned> parts = partsOf(func, weightsApart);
    placeConditions(func, parts);
    Cutter cutter(func, parts, weightsApart ? 3 : 2);
    Operation *terminator = actionBody(func).getTerminator();
    for (auto [index, value] : llvm::enumerate(terminator->getOperands())) {
      DictionaryAttr attrs = func.getResultAttrDict(index);
      unsigned part = partOfResult(roleOf(attrs), weightsApart);
      if (roleOf(attrs) == Role::Tap) {
        Operation *def = value.getDefiningOp();
        part = def ? parts.lookup(def) : cutter.results.size() - 1;
      }
      cutter.results[part].push_back({value, withSlot(attrs, unsigned(-1))});
    }
    cutter.analyze("r");
    SmallVector<BlockArgument> inputs;
    for (auto &[value, entry] : cutter.kept) {
      if (entry.persistent || isGathered(entry))
        continue;
      DictionaryAttr attrs = entry.attrs.getDictionary(&getContext());
      std::optional<Role> role = roleOf(attrs);
      unsigned last = std::max({0, entry.first, entry.last});
      if (entry.first >= 0) {
        entry.attrs = withSlot(attrs, last, entry.first);
      } else if (role == Role::Activation || role == Role::Cotangent) {
        entry.attrs.set(
            pipe::kSlotAttr,
            slotAttr((role == Role::Activation ? "recv_f:" : "recv_b:") +
                     nameOfPart(last, weightsApart)));
      } else {
        inputs.push_back(cast<BlockArgument>(value));
        nn::setName(entry.attrs, &getContext(), nameOf(attrs) + ".slot");
        nn::setRole(entry.attrs, &getContext(), Role::Residual);
        entry.attrs.set(
            pipe::kSlotAttr,
            slotAttr(kForwardPart + ":" + nameOfPart(last, weightsApart)));
      }
    }
    buildLoad(func, inputs);
    SmallVector<std::string> names = {kForwardPart.str()};
    if (weightsApart)
      names.append({kInputPart.str(), kWeightPart.str()});
    else
      names.push_back(kBackwardPart.str());
    cutter.build(names);
  }

  /// Operations may be conditional on a flag, which a dist.condition operation
  /// defines. Clones each dist.condition into every part that has operations
  /// conditional on it.
  static void placeConditions(func::FuncOp func,
                              DenseMap<Operation *, unsigned> &parts) {
    Block &block = actionBody(func);
    // Iterates over a copy of the list, because the loop inserts clones of
    // dist.condition operations.
    for (auto condition : llvm::to_vector(block.getOps<dist::ConditionOp>())) {
      std::map<unsigned, Operation *> first;
      for (Operation &op : block)
        if (op.getAttr(kWhenAttrName) == condition.getNumberAttr())
          first.try_emplace(parts.lookup(&op), &op);
      Operation *def = condition.getFlag().getDefiningOp();
      parts[condition] = def ? parts.lookup(def) : unsigned(Forward);
      for (auto [part, op] : first)
        if (part != parts[condition]) {
          Operation *copy = OpBuilder(op).clone(*condition);
          parts[copy] = part;
        }
    }
  }

  /// Returns whether a separate action gathers the parameter `entry` from its
  /// shards, once for all microbatches of a step.
  static bool isGathered(const Kept &entry) {
    auto slot =
        dyn_cast_or_null<pipe::SlotAttr>(entry.attrs.get(pipe::kSlotAttr));
    return entry.first < 0 && slot && slot.getText() == kGatheredSlot;
  }

  /// Adds the attribute pipe.slot, which states the lifetime of a value: from
  /// part `first`, which computes it, until it has been sent and part `last`
  /// has read it.
  DictionaryAttr withSlot(DictionaryAttr attrs, unsigned last,
                          unsigned first = 0) {
    std::optional<Role> role = roleOf(attrs);
    if (isPersistent(role))
      return attrs;
    std::string slot;
    if (role == Role::Cotangent)
      first = Input;
    slot = (nameOfPart(first, weightsApart) + ":").str();
    if (role == Role::Activation)
      slot += "send_f";
    if (role == Role::Cotangent)
      slot += "send_b";
    if (last != unsigned(-1) && last > first)
      slot += ((slot.back() == ':' ? "" : ",") + nameOfPart(last, weightsApart))
                  .str();
    NamedAttrList list(attrs);
    list.set(pipe::kSlotAttr, slotAttr(slot));
    return list.getDictionary(&getContext());
  }

  /// Builds @load, which returns the inputs of a microbatch unchanged, so that
  /// they are stored until the later actions of the microbatch have read them.
  void buildLoad(func::FuncOp func, ArrayRef<BlockArgument> inputs) {
    if (inputs.empty())
      return;
    OpBuilder b(func);
    SmallVector<Type> types;
    SmallVector<DictionaryAttr> argumentAttrs, resultAttrs;
    for (BlockArgument input : inputs) {
      types.push_back(input.getType());
      DictionaryAttr attrs = func.getArgAttrDict(input.getArgNumber());
      argumentAttrs.push_back(attrs);
      resultAttrs.push_back(
          residualAttrs(&getContext(), nameOf(attrs) + ".stored", "store"));
    }
    auto load = func::FuncOp::create(b, func.getLoc(), "load",
                                     b.getFunctionType(types, types));
    Block *body = load.addEntryBlock();
    b.setInsertionPointToStart(body);
    func::ReturnOp::create(b, func.getLoc(), body->getArguments());
    load.setAllArgAttrs(argumentAttrs);
    load.setAllResultAttrs(resultAttrs);
  }

  //===--------------------------------------------------------------------===//
  // @loss, @forward
  //===--------------------------------------------------------------------===//

  /// Gives the activations that evaluation passes between stages names and
  /// slots (pipe.slot) of their own, because activations of training may have
  /// the same names.
  void keepActivations(func::FuncOp func) {
    BoundaryAttrs boundary(func);
    auto rename = [&](DictionaryAttr attrs) {
      return text(func.getName() + ":" + nameOf(attrs));
    };
    for (unsigned i = 0; i < func.getNumArguments(); ++i)
      if (DictionaryAttr attrs = func.getArgAttrDict(i);
          roleOf(attrs) == Role::Activation) {
        boundary.setArgument(i, nn::kNameAttr, rename(attrs));
        boundary.setArgument(i, pipe::kSlotAttr, slotAttr("eval"));
      }
    for (unsigned i = 0; i < func.getNumResults(); ++i)
      if (DictionaryAttr attrs = func.getResultAttrDict(i);
          roleOf(attrs) == Role::Activation) {
        boundary.setResult(i, nn::kNameAttr, rename(attrs));
        boundary.setResult(i, pipe::kSlotAttr, slotAttr("eval"));
      }
    boundary.apply();
  }

  void keepVersions(func::FuncOp func) {
    BoundaryAttrs boundary(func);
    for (unsigned i = 0; i < func.getNumArguments(); ++i)
      if (roleOf(func.getArgAttrDict(i)) == Role::Parameter)
        boundary.setArgument(i, pipe::kSlotAttr, slotAttr("version"));
    for (unsigned i = 0; i < func.getNumResults(); ++i)
      if (roleOf(func.getResultAttrDict(i)) == Role::Parameter)
        boundary.setResult(i, pipe::kSlotAttr, slotAttr("version"));
    boundary.apply();
  }
};

} // namespace
