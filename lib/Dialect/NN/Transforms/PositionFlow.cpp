// Finds the dimensions of values that enumerate the positions of the sequence.

#include "cleave/Dialect/NN/Transforms/PositionFlow.h"

#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Dialect/NN/IR/Batch.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::nn;

static RankedTensorType rankedTypeOf(Value value) {
  return dyn_cast<RankedTensorType>(value.getType());
}

SmallVector<std::pair<BlockArgument, int64_t>>
nn::positionSeeds(func::FuncOp func) {
  SmallVector<std::pair<BlockArgument, int64_t>> seeds, inputs;
  for (BlockArgument argument : func.getArguments()) {
    RankedTensorType type = rankedTypeOf(argument);
    DictionaryAttr attrs = func.getArgAttrDict(argument.getArgNumber());
    if (!type || !attrs)
      continue;
    int64_t rank = type.getRank();
    if (auto dim = attrs.getAs<IntegerAttr>(kPositionDimAttr)) {
      if (dim.getInt() >= 0 && dim.getInt() < rank)
        seeds.push_back({argument, dim.getInt()});
      continue;
    }
    std::optional<Role> role = roleOf(attrs);
    std::optional<int64_t> batch = batchDimOf(attrs, rank);
    if (!role || !batch)
      continue;
    std::pair<BlockArgument, int64_t> seed(argument, *batch == 0 ? 1 : 0);
    if (role == Role::Tokens && rank >= 2)
      seeds.push_back(seed);
    else if (role == Role::Input && rank >= 3 && inputs.empty())
      inputs.push_back(seed);
  }
  return seeds.empty() ? inputs : seeds;
}

std::optional<int64_t> nn::reorderedDim(Operation *op) {
  auto gather = dyn_cast<GatherOp>(op);
  if (!gather || !gather->hasAttr(kReorderAttr))
    return std::nullopt;
  return gather.getDim();
}

ShardingRule nn::connectionsOf(Operation *op) {
  auto constrain = dyn_cast<dist::ConstrainOp>(op);
  if (!constrain)
    return ShardingRule::of(op);
  ShardingRule rule;
  TensorFactors dims;
  for (int64_t size : cast<RankedTensorType>(constrain.getType()).getShape())
    dims.push_back({rule.addFactor(size)});
  rule.operands = {dims};
  rule.results = {dims};
  return rule;
}

PositionFlow::PositionFlow(func::FuncOp func) {
  if (func.isExternal())
    return;
  for (auto [argument, dim] : positionSeeds(func)) {
    if (!length)
      length = rankedTypeOf(argument).getDimSize(dim);
    mark(argument, dim);
  }
  if (any())
    run(func.getBody().front());
}

bool PositionFlow::isPosition(Value value, int64_t dim) const {
  auto it = marks.find(value);
  return it != marks.end() && it->second[dim];
}

std::optional<int64_t> PositionFlow::dimOf(Value value) const {
  auto it = marks.find(value);
  if (it != marks.end())
    for (auto [dim, isMarked] : llvm::enumerate(it->second))
      if (isMarked)
        return dim;
  return std::nullopt;
}

/// Marks a dimension as counting positions if it is as long as the sequence,
/// and returns whether the mark is new. A dimension of a different size does
/// not enumerate positions, even if a sharding rule connects it with such a
/// dimension: it may belong to a longer table of position embeddings, or to a
/// slice.
bool PositionFlow::mark(Value value, int64_t dim) {
  RankedTensorType type = rankedTypeOf(value);
  if (!type || type.getDimSize(dim) != length)
    return false;
  SmallVector<bool> &dims = marks[value];
  dims.resize(type.getRank(), false);
  return !std::exchange(dims[dim], true);
}

void PositionFlow::run(Block &body) {
  // The marks are not propagated through a constant, from one operation that
  // reads it to another one, since they are unrelated: each could as well read
  // its own copy of the constant.
  auto connects = [](Operation *op) {
    return !op->hasTrait<OpTrait::ConstantLike>();
  };
  llvm::SetVector<Operation *> work;
  DenseMap<Operation *, ShardingRule> rules;
  for (Operation &op : body.without_terminator())
    if (connects(&op)) {
      rules[&op] = connectionsOf(&op);
      work.insert(&op);
    }
  auto revisit = [&](Value value) {
    if (Operation *def = value.getDefiningOp(); def && rules.count(def))
      work.insert(def);
    for (Operation *user : value.getUsers())
      if (rules.count(user))
        work.insert(user);
  };
  while (!work.empty()) {
    Operation *op = work.pop_back_val();
    const ShardingRule &rule = rules[op];
    auto forEachDim = [&](auto visit) {
      auto all = [&](ValueRange values, ArrayRef<TensorFactors> tensors) {
        for (auto [value, dims] : llvm::zip(values, tensors)) {
          Operation *def = value.getDefiningOp();
          if (def && !connects(def))
            continue;
          for (auto [dim, made] : llvm::enumerate(dims))
            if (made.size() == 1)
              visit(value, int64_t(dim), made[0]);
        }
      };
      all(op->getOperands(), rule.operands);
      all(op->getResults(), rule.results);
    };
    SmallVector<bool> counts(rule.factors.size(), false);
    forEachDim([&](Value value, int64_t dim, int64_t factor) {
      counts[factor] = counts[factor] || isPosition(value, dim);
    });
    auto markNew = [&](Value value, int64_t dim) {
      if (mark(value, dim))
        revisit(value);
    };
    forEachDim([&](Value value, int64_t dim, int64_t factor) {
      if (counts[factor])
        markNew(value, dim);
    });
    if (std::optional<int64_t> dim = reorderedDim(op)) {
      Value table = op->getOperand(0), result = op->getResult(0);
      if (isPosition(table, *dim))
        markNew(result, *dim);
      else if (isPosition(result, *dim))
        markNew(table, *dim);
    }
  }
}
