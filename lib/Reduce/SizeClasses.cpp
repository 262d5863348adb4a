// Finds the dimensions that must have the same size; see SizeClasses.h.

#include "SizeClasses.h"

#include "Edits.h"

#include "cleave/Partition/Propagation/FactorGraph.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::reduce;

static Value valueOf(partition::Port port) {
  Block &body = port.func.getBody().front();
  return port.isResult ? body.getTerminator()->getOperand(port.index)
                       : Value(body.getArgument(port.index));
}

SizeClasses::SizeClasses(ModuleOp module) {
  for (func::FuncOp func : functionsOf(module))
    for (Value argument : func.getArguments())
      add(argument);
  Ops ops = opsOf(module);
  for (Operation *op : ops) {
    for (Value result : op->getResults())
      add(result);
    for (Region &region : op->getRegions())
      for (Value argument : region.getArguments())
        add(argument);
  }
  for (Operation *op : ops)
    addOp(op);
  // The dimensions of the following values also have equal sizes: of the values
  // that a loop carries, of the results of both regions of a branch, and of
  // inputs and outputs of functions that have the same name.
  module.walk([&](scf::YieldOp yield) {
    for (auto [operand, result] : llvm::zip_equal(
             yield.getOperands(), yield->getParentOp()->getResults()))
      unite(operand, result);
  });
  module.walk([&](scf::ForOp loop) {
    for (auto [argument, result] :
         llvm::zip_equal(loop.getRegionIterArgs(), loop.getResults()))
      unite(argument, result);
  });
  for (ArrayRef<partition::Port> group : partition::boundaryTable(module))
    for (const partition::Port &port : group)
      unite(valueOf(group.front()), valueOf(port));
}

void SizeClasses::addOp(Operation *op) {
  auto isTensor = [](Value value) {
    return isa<RankedTensorType>(value.getType());
  };
  // Sharding rules cover only tensors, so an operation with results that are
  // not tensors (such as loop bounds) connects no dimensions.
  if (llvm::all_of(op->getResults(), isTensor)) {
    ShardingRule rule = partition::ruleOf(op);
    if (rule.operands.size() == op->getNumOperands() &&
        rule.results.size() == op->getNumResults()) {
      SmallVector<std::optional<Dim>> first(rule.factors.size());
      addFactors(op->getOperands(), rule.operands, first);
      addFactors(op->getResults(), rule.results, first);
      return;
    }
  }
  for (ValueRange range :
       {ValueRange(op->getOperands()), ValueRange(op->getResults())})
    for (Value value : range)
      if (auto type = dyn_cast<RankedTensorType>(value.getType()))
        for (size_t dim = 0, rank = type.getRank(); dim < rank; ++dim)
          fixed.insert({number[value], dim});
}

void SizeClasses::addFactors(ValueRange range, ArrayRef<TensorFactors> factors,
                             MutableArrayRef<std::optional<Dim>> first) {
  for (auto [value, dims] : llvm::zip_equal(range, factors))
    for (auto [dim, made] : llvm::enumerate(dims)) {
      Dim here = {number[value], dim};
      if (made.size() != 1) {
        fixed.insert(here);
        continue;
      }
      // In convolutions and pooling, two dimensions with the same factor can
      // have different sizes. They are not united, and their sizes are never
      // changed.
      if (first[made[0]] && size(*first[made[0]]) != size(here))
        fixed.insert({here, *first[made[0]]});
      else if (first[made[0]])
        classes.unionSets(*first[made[0]], here);
      first[made[0]] = here;
    }
}

void SizeClasses::add(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  if (!type)
    return;
  number[value] = values.size();
  for (size_t dim = 0, rank = type.getRank(); dim < rank; ++dim)
    classes.insert({values.size(), dim});
  values.push_back(value);
}

void SizeClasses::unite(Value a, Value b) {
  auto type = dyn_cast<RankedTensorType>(a.getType());
  for (size_t dim = 0, rank = type ? type.getRank() : 0; dim < rank; ++dim)
    classes.unionSets({number[a], dim}, {number[b], dim});
}

SmallVector<SizeClasses::Dim> SizeClasses::leaders() const {
  SmallVector<Dim> result;
  for (auto it = classes.begin(); it != classes.end(); ++it)
    if ((*it)->isLeader())
      result.push_back((*it)->getData());
  llvm::sort(result);
  return result;
}

int64_t SizeClasses::size(Dim dim) const {
  return cast<RankedTensorType>(values[dim.first].getType())
      .getDimSize(dim.second);
}

bool SizeClasses::resize(Dim leader, int64_t size) {
  for (auto member = classes.findLeader(leader); member != classes.member_end();
       ++member) {
    if (fixed.count(*member))
      return false;
    Value value = values[member->first];
    auto type = cast<RankedTensorType>(value.getType());
    SmallVector<int64_t> shape(type.getShape());
    shape[member->second] = size;
    value.setType(type.clone(shape));
    if (auto constant = value.getDefiningOp<arith::ConstantOp>()) {
      auto dense = dyn_cast<DenseElementsAttr>(constant.getValue());
      if (!dense || !dense.isSplat())
        return false;
      constant.setValueAttr(dense.resizeSplat(type.clone(shape)));
    }
  }
  return true;
}
