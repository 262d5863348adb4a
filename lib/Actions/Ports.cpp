// Arguments and results of a stage's functions.

#include "Ports.h"

#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Interfaces/Condition.h"
#include "cleave/Interfaces/ProgramWalk.h"
#include "cleave/Interfaces/StageAttrs.h"

#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace cleave;

bool actions::isPersistent(std::optional<Role> role) {
  return isOneOf(role, {Role::Parameter, Role::Buffer, Role::Constant,
                        Role::State, Role::Gradient, Role::Loss, Role::Weight,
                        Role::Accumulator, Role::LearningRate, Role::Step,
                        Role::Seed, Role::Metric, Role::Tap, Role::Count});
}

unsigned actions::partOfResult(std::optional<Role> role, bool weightsApart) {
  if (role == Role::Gradient)
    return weightsApart ? Weight : Input;
  return role == Role::Cotangent ? Input : Forward;
}

StringRef actions::nameOfPart(unsigned part, bool weightsApart) {
  if (part == Forward)
    return kForwardPart;
  return part == Weight ? kWeightPart
         : weightsApart ? kInputPart
                        : kBackwardPart;
}

pipe::SlotAttr actions::slotAttr(MLIRContext *context, const Twine &text) {
  return pipe::SlotAttr::get(context, StringAttr::get(context, text));
}

DictionaryAttr actions::residualAttrs(MLIRContext *context, const Twine &name,
                                      StringRef slot) {
  NamedAttrList attrs(nn::portAttrs(context, name, Role::Residual));
  attrs.set(pipe::kSlotAttr, slotAttr(context, slot));
  return attrs.getDictionary(context);
}

DenseMap<Operation *, unsigned> actions::partsOf(func::FuncOp func,
                                                 bool weightsApart) {
  Block &block = actionBody(func);
  DenseMap<Operation *, unsigned> parts;
  // An operation with the attribute nn.when runs only if a flag is set, so it
  // also depends on this flag. nn.when holds the number of the dist.condition
  // operation that defines the flag.
  DenseMap<Attribute, Operation *> flags;
  for (auto condition : block.getOps<dist::ConditionOp>())
    flags[condition.getNumberAttr()] = condition.getFlag().getDefiningOp();
  // Assigns to `part` the operations of the worklist and all operations that
  // they depend on, except those that an earlier part has.
  auto claim = [&](unsigned part, SmallVector<Operation *> worklist) {
    while (!worklist.empty()) {
      Operation *op = worklist.pop_back_val();
      if (!op || !parts.try_emplace(op, part).second)
        continue;
      if (Attribute when = op->getAttr(kWhenAttrName))
        worklist.push_back(flags.lookup(when));
      llvm::SetVector<Value> read(op->operand_begin(), op->operand_end());
      getUsedValuesDefinedAbove(op->getRegions(), read);
      for (Value value : read)
        worklist.push_back(value.getDefiningOp());
    }
  };
  for (unsigned part : {Forward, Input}) {
    SmallVector<Operation *> roots;
    for (OpOperand &operand : block.getTerminator()->getOpOperands()) {
      std::optional<Role> role =
          roleOf(func.getResultAttrDict(operand.getOperandNumber()));
      if (role != Role::Tap && partOfResult(role, weightsApart) == part)
        roots.push_back(operand.get().getDefiningOp());
    }
    if (part == Forward)
      func.walk([&](nn::SaveOp save) {
        roots.push_back(block.findAncestorOpInBlock(*save));
      });
    claim(part, roots);
  }
  for (Operation &op : block.without_terminator())
    parts.try_emplace(&op, weightsApart ? Weight : Input);
  return parts;
}
