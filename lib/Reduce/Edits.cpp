// Edits of functions, of their arguments and results, and of operations; see
// Edits.h.

#include "Edits.h"

#include "cleave/Dialect/NN/IR/NN.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::reduce;

SmallVector<func::FuncOp> reduce::functionsOf(ModuleOp module) {
  return llvm::filter_to_vector(
      module.getOps<func::FuncOp>(),
      [](func::FuncOp func) { return !func.isExternal(); });
}

Ops reduce::opsOf(ModuleOp module) {
  Ops ops;
  for (func::FuncOp func : functionsOf(module))
    func.getBody().walk<WalkOrder::PreOrder>([&](Operation *op) {
      if (!op->hasTrait<OpTrait::IsTerminator>())
        ops.push_back(op);
    });
  return ops;
}

SmallVector<partition::Port> reduce::resultsOf(ModuleOp module) {
  return llvm::filter_to_vector(
      partition::portsOf(module),
      [](const partition::Port &port) { return port.isResult; });
}

void reduce::setAttr(const partition::Port &port, StringRef name,
                     Attribute value) {
  func::FuncOp func = port.func;
  auto key = StringAttr::get(func.getContext(), name);
  if (port.isResult && value)
    func.setResultAttr(port.index, key, value);
  else if (port.isResult)
    func.removeResultAttr(port.index, key);
  else if (value)
    func.setArgAttr(port.index, key, value);
  else
    func.removeArgAttr(port.index, key);
}

void reduce::tidy(ModuleOp module) {
  Ops ops = opsOf(module);
  for (Operation *op : llvm::reverse(ops))
    if (op->getNumResults() != 0 && op->use_empty())
      op->erase();
  for (func::FuncOp func : functionsOf(module)) {
    Block &body = func.getBody().front();
    func.setFunctionType(
        FunctionType::get(module.getContext(), body.getArgumentTypes(),
                          body.getTerminator()->getOperandTypes()));
    for (unsigned i = func.getNumArguments(); i-- > 0;)
      if (body.getArgument(i).use_empty() && func.getNumArguments() > 1)
        (void)func.eraseArgument(i);
  }
}

bool reduce::dropFunction(ModuleOp module, size_t number) {
  SmallVector<func::FuncOp> functions = functionsOf(module);
  if (functions.size() == 1 || number >= functions.size())
    return false;
  functions[number].erase();
  return true;
}

bool reduce::dropNames(ModuleOp module, size_t begin, size_t end) {
  SmallVector<partition::Port> ports = partition::portsOf(module);
  bool any = false;
  for (size_t i = begin; i < std::min(end, ports.size()); ++i) {
    any |= !ports[i].name().empty();
    setAttr(ports[i], nn::kNameAttr, {});
    setAttr(ports[i], nn::kRoleAttr, {});
  }
  return any;
}

static bool isNote(StringRef name) {
  return name != nn::kNameAttr && name != nn::kRoleAttr &&
         name != dist::kShardingAttrName;
}

bool reduce::dropPortNotes(ModuleOp module, size_t begin, size_t end) {
  SmallVector<partition::Port> ports = partition::portsOf(module);
  bool any = false;
  for (size_t i = begin; i < std::min(end, ports.size()); ++i) {
    func::FuncOp func = ports[i].func;
    DictionaryAttr attrs = ports[i].isResult
                               ? func.getResultAttrDict(ports[i].index)
                               : func.getArgAttrDict(ports[i].index);
    if (!attrs)
      continue;
    for (NamedAttribute attr : attrs)
      if (isNote(attr.getName())) {
        setAttr(ports[i], attr.getName(), {});
        any = true;
      }
  }
  return any;
}

bool reduce::dropOpNotes(ModuleOp module, size_t begin, size_t end) {
  Ops ops = opsOf(module);
  bool any = false;
  for (size_t i = begin; i < std::min(end, ops.size()); ++i)
    for (NamedAttribute attr : ops[i]->getDiscardableAttrDictionary())
      if (isNote(attr.getName())) {
        ops[i]->removeDiscardableAttr(attr.getName());
        any = true;
      }
  return any;
}

bool reduce::dropResults(ModuleOp module, size_t begin, size_t end) {
  SmallVector<partition::Port> results = resultsOf(module);
  bool any = false;
  // The loop runs from the last result to the first, so that indices of earlier
  // results stay valid.
  for (size_t i = std::min(end, results.size()); i-- > begin;) {
    func::FuncOp func = results[i].func;
    if (func.getNumResults() == 1)
      continue;
    unsigned index = results[i].index;
    func.getBody().front().getTerminator()->eraseOperand(index);
    if (failed(func.eraseResult(index)))
      return false;
    any = true;
  }
  return any;
}

bool reduce::dropOps(ModuleOp module, size_t begin, size_t end) {
  Ops ops = opsOf(module);
  bool any = false;
  // The loop runs from the last operation to the first, so that operations in
  // regions are erased before the operation that contains them.
  for (size_t i = std::min(end, ops.size()); i-- > begin;)
    if (ops[i]->getNumResults() == 0) {
      ops[i]->erase();
      any = true;
    }
  return any;
}

bool reduce::cutOps(ModuleOp module, size_t begin, size_t end) {
  Ops ops = opsOf(module);
  SmallVector<Operation *> cut;
  // Operations without operands, such as constants, are not replaced by
  // arguments: an argument is no smaller than a constant, and an edit and its
  // reverse could alternate forever.
  for (size_t i = begin; i < std::min(end, ops.size()); ++i)
    if (ops[i]->getNumOperands() != 0 &&
        llvm::all_of(ops[i]->getResultTypes(), llvm::IsaPred<RankedTensorType>))
      cut.push_back(ops[i]);
  llvm::SmallDenseSet<Operation *> inside(cut.begin(), cut.end());
  auto isCut = [&](Operation *user) {
    for (; user; user = user->getParentOp())
      if (inside.contains(user))
        return true;
    return false;
  };
  bool any = false;
  for (Operation *op : cut) {
    auto func = op->getParentOfType<func::FuncOp>();
    any |= op->getNumResults() != 0;
    for (Value result : op->getResults()) {
      if (llvm::all_of(result.getUsers(), isCut))
        continue;
      if (failed(func.insertArgument(func.getNumArguments(), result.getType(),
                                     {}, op->getLoc())))
        return false;
      result.replaceUsesWithIf(func.getArguments().back(), [&](OpOperand &use) {
        return !isCut(use.getOwner());
      });
    }
  }
  return any;
}

bool reduce::skipOp(ModuleOp module, size_t number, unsigned operand) {
  Ops ops = opsOf(module);
  if (number >= ops.size())
    return false;
  Operation *op = ops[number];
  if (operand >= op->getNumOperands() || op->getNumResults() == 0 ||
      op->getOperand(operand).getType() != op->getResult(0).getType())
    return false;
  op->getResult(0).replaceAllUsesWith(op->getOperand(operand));
  return true;
}

bool reduce::returnOperand(ModuleOp module, size_t result, unsigned operand) {
  SmallVector<partition::Port> results = resultsOf(module);
  if (result >= results.size())
    return false;
  func::FuncOp func = results[result].func;
  unsigned index = results[result].index;
  Operation *terminator = func.getBody().front().getTerminator();
  Operation *op = terminator->getOperand(index).getDefiningOp();
  if (!op || operand >= op->getNumOperands() ||
      !isa<RankedTensorType>(op->getOperand(operand).getType()))
    return false;
  Value given = op->getOperand(operand);
  // If the type of the function's result changes, its sharding and other
  // attributes no longer fit and are removed.
  if (given.getType() != terminator->getOperand(index).getType())
    func.setResultAttrs(index, ArrayRef<NamedAttribute>());
  terminator->setOperand(index, given);
  return true;
}

bool reduce::inlineRegion(ModuleOp module, size_t number, unsigned side) {
  Ops ops = opsOf(module);
  if (number >= ops.size() || !isa<scf::ForOp, scf::IfOp>(ops[number]))
    return false;
  Operation *op = ops[number];
  if (side >= op->getNumRegions() || op->getRegion(side).empty())
    return false;
  IRMapping map;
  if (auto loop = dyn_cast<scf::ForOp>(op)) {
    map.map(loop.getInductionVar(), loop.getLowerBound());
    map.map(loop.getRegionIterArgs(), loop.getInitArgs());
  }
  OpBuilder builder(op);
  Block &body = op->getRegion(side).front();
  for (Operation &inner : body.without_terminator())
    builder.clone(inner, map);
  for (auto [result, given] :
       llvm::zip_equal(op->getResults(), body.getTerminator()->getOperands()))
    result.replaceAllUsesWith(map.lookupOrDefault(given));
  // The loop or branch is erased here: if it has no results, no later edit
  // would find it unused.
  op->erase();
  return true;
}

bool reduce::mergeArguments(ModuleOp module, size_t function, unsigned from,
                            unsigned to) {
  SmallVector<func::FuncOp> functions = functionsOf(module);
  if (function >= functions.size())
    return false;
  func::FuncOp func = functions[function];
  if (from >= func.getNumArguments() ||
      func.getArgument(from).getType() != func.getArgument(to).getType() ||
      func.getArgument(from).use_empty())
    return false;
  func.getArgument(from).replaceAllUsesWith(func.getArgument(to));
  return true;
}
