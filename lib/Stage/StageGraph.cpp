// Determines which operations of a function belong to a stage; see
// StageGraph.h.

#include "StageGraph.h"

#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Transforms/RegionUtils.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::stage;

func::FuncOp cleave::stage::mainFunction(ModuleOp module) {
  for (StringRef name : {nn::kLossTrainFunc, nn::kLossFunc, nn::kForwardFunc})
    if (auto func = module.lookupSymbol<func::FuncOp>(name))
      return func;
  return {};
}

bool cleave::stage::isTrained(BlockArgument argument) {
  return nn::roleOf(argument) == nn::Role::Parameter;
}

bool cleave::stage::isParameter(BlockArgument argument) {
  auto func = cast<func::FuncOp>(argument.getOwner()->getParentOp());
  return isTrained(argument) ||
         func.getArgAttr(argument.getArgNumber(), nn::kFrozenAttr);
}

SmallVector<Value> cleave::stage::readsOf(Operation *op) {
  SmallVector<Value> reads(op->getOperands());
  if (op->getNumRegions() == 0)
    return reads;
  llvm::SetVector<Value> captured;
  for (Region &region : op->getRegions())
    getUsedValuesDefinedAbove(region, captured);
  llvm::append_range(reads, captured);
  return reads;
}

static bool isFloat(Value value) {
  return isa<FloatType>(getElementTypeOrSelf(value));
}

DenseSet<Value> cleave::stage::differentiableValues(func::FuncOp func) {
  Block &body = func.getBody().front();
  DenseSet<Value> active, found;
  for (BlockArgument argument : func.getArguments())
    if (isTrained(argument))
      active.insert(argument);
  SmallVector<std::pair<Operation *, SmallVector<Value>>> ops;
  for (Operation &op : body.without_terminator()) {
    SmallVector<Value> reads = readsOf(&op);
    if (llvm::none_of(reads, [&](Value v) { return active.contains(v); }))
      continue;
    for (Value result : op.getResults())
      if (isFloat(result))
        active.insert(result);
    ops.push_back({&op, std::move(reads)});
  }
  auto reach = [&](Value value) {
    if (active.contains(value) && isFloat(value))
      found.insert(value);
  };
  if (body.getTerminator()->getNumOperands())
    reach(body.getTerminator()->getOperand(0));
  for (auto &[op, reads] : llvm::reverse(ops))
    if (llvm::any_of(op->getResults(),
                     [&](Value v) { return found.contains(v); }))
      llvm::for_each(reads, reach);
  return found;
}

void cleave::stage::eraseDead(func::FuncOp func) {
  Operation *op = func.getBody().front().getTerminator()->getPrevNode();
  while (op) {
    Operation *previous = op->getPrevNode();
    if (isOpTriviallyDead(op))
      op->erase();
    op = previous;
  }
}

StageGraph::StageGraph(func::FuncOp func) {
  for (BlockArgument argument : func.getArguments()) {
    bool isFixed = nn::isOneOf(nn::roleOf(argument),
                               {nn::Role::Buffer, nn::Role::Constant});
    argumentSources.push_back(isParameter(argument) ? Weights
                              : isFixed             ? 0
                                                    : Inputs);
    arguments.push_back(argument.getArgNumber());
  }
  for (Operation &op : func.getBody().front().without_terminator()) {
    SmallVector<unsigned, 1> read;
    unsigned char from = 0;
    for (Value value : readsOf(&op)) {
      from |= sourcesOf(value);
      llvm::append_range(read, weightsOf(value));
    }
    llvm::sort(read);
    read.erase(llvm::unique(read), read.end());
    if (from == Both) {
      indices[&op] = ordered.size();
      ordered.push_back(&op);
    }
    sources[&op] = from;
    if (!read.empty())
      weights[&op] = std::move(read);
  }
}

unsigned char StageGraph::sourcesOf(Value value) const {
  if (Operation *def = value.getDefiningOp())
    return sources.lookup(def);
  return argumentSources[cast<BlockArgument>(value).getArgNumber()];
}

ArrayRef<unsigned> StageGraph::weightsOf(Value value) const {
  if (Operation *def = value.getDefiningOp())
    return isStaged(def) ? ArrayRef<unsigned>() : parametersOf(def);
  unsigned number = cast<BlockArgument>(value).getArgNumber();
  if (argumentSources[number] != Weights)
    return {};
  return ArrayRef<unsigned>(arguments).slice(number, 1);
}

ArrayRef<unsigned> StageGraph::parametersOf(Operation *op) const {
  auto it = weights.find(op);
  return it == weights.end() ? ArrayRef<unsigned>()
                             : ArrayRef<unsigned>(it->second);
}
