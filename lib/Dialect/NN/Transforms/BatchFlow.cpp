// Finds the batch dimension of each value: the one that enumerates the samples
// of a call of the function.

#include "cleave/Dialect/NN/Transforms/BatchFlow.h"

#include "cleave/Dialect/NN/IR/Batch.h"
#include "cleave/Interfaces/Interfaces.h"
#include "cleave/Support/ValueUtils.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::nn;

std::optional<BatchFlow> BatchFlow::ofArguments(func::FuncOp func) {
  SmallVector<std::pair<BlockArgument, int64_t>> seeds;
  for (BlockArgument argument : func.getArguments())
    if (auto type = dyn_cast<RankedTensorType>(argument.getType()))
      if (auto dim = batchDimOf(func.getArgAttrDict(argument.getArgNumber()),
                                type.getRank()))
        seeds.push_back({argument, *dim});
  if (seeds.empty())
    return std::nullopt;
  auto sizeOf = [](const std::pair<BlockArgument, int64_t> &seed) {
    return typeOf(seed.first).getDimSize(seed.second);
  };
  BatchFlow flow(func, sizeOf(seeds.front()));
  for (const auto &seed : seeds)
    if (sizeOf(seed) == flow.batch)
      flow.seed(seed.first, seed.second);
  flow.run();
  return flow;
}

void BatchFlow::seed(BlockArgument argument, int64_t dim) {
  batched.insert(argument);
  set(argument, dim);
}

void BatchFlow::run() {
  Block &body = func.getBody().front();
  for (Operation &op : body.without_terminator())
    if (llvm::any_of(op.getOperands(),
                     [&](Value operand) { return fromInputs(operand); }))
      computed.insert(&op);
  do {
    changed = false;
    for (Operation &op : body.without_terminator())
      visit(&op);
    for (Operation &op : llvm::reverse(body.without_terminator()))
      visit(&op);
  } while (changed);
  for (Operation &op : body.without_terminator())
    findMixing(&op);
}

std::optional<int64_t> BatchFlow::dimOf(Value value) const {
  std::optional<int64_t> only;
  auto it = marks.find(value);
  if (it == marks.end())
    return only;
  for (auto [dim, isMarked] : llvm::enumerate(it->second)) {
    if (!isMarked || typeOf(value).getDimSize(dim) != batch)
      continue;
    if (only)
      return std::nullopt;
    only = dim;
  }
  return only;
}

std::optional<int64_t> BatchFlow::dimOrUnit(Value value) const {
  std::optional<int64_t> dim = dimOf(value);
  RankedTensorType type = typeOf(value);
  if (!dim && batch == 1 && isBatched(value) && type.getRank() &&
      type.getDimSize(0) == 1)
    dim = 0;
  return dim;
}

std::optional<int64_t> BatchFlow::majorDimOf(Value value) const {
  if (std::optional<int64_t> dim = dimOrUnit(value))
    return dim;
  auto it = marks.find(value);
  if (it == marks.end() || llvm::count(it->second, true) != 1)
    return std::nullopt;
  return llvm::find(it->second, true) - it->second.begin();
}

bool BatchFlow::hasDim(Value value) const {
  auto it = marks.find(value);
  return dimOrUnit(value) ||
         (it != marks.end() && llvm::is_contained(it->second, true));
}

bool BatchFlow::meetsBatch(BlockArgument argument) const {
  llvm::SmallPtrSet<Operation *, 16> seen;
  SmallVector<Value> work = {argument};
  while (!work.empty())
    for (Operation *user : work.pop_back_val().getUsers()) {
      if (!seen.insert(user).second)
        continue;
      for (Value result : user->getResults()) {
        if (marks.count(result))
          return true;
        work.push_back(result);
      }
    }
  return false;
}

/// Returns whether the value depends on inputs. If not, it depends only on
/// parameters, buffers and constants.
bool BatchFlow::fromInputs(Value value) {
  if (Operation *def = value.getDefiningOp())
    return computed.count(def);
  std::optional<nn::Role> role = nn::roleOf(cast<BlockArgument>(value));
  return role && !nn::isOneOf(role, {nn::Role::Parameter, nn::Role::Buffer,
                                     nn::Role::Constant});
}

void BatchFlow::set(Value value, int64_t dim) {
  int64_t size = typeOf(value).getDimSize(dim);
  if (!fromInputs(value) || size == 0 || size % batch != 0)
    return;
  SmallVector<bool> &dims = marks[value];
  dims.resize(typeOf(value).getRank(), false);
  changed |= !dims[dim];
  dims[dim] = true;
}

bool BatchFlow::isMarked(Value value, int64_t dim) const {
  auto it = marks.find(value);
  return it != marks.end() && it->second[dim];
}

template <typename Visit>
static void forEachDim(Operation *op, const ShardingRule &rule, Visit visit) {
  auto all = [&](ValueRange values, ArrayRef<TensorFactors> factors) {
    for (auto [value, dims] : llvm::zip(values, factors))
      for (auto [dim, parts] : llvm::enumerate(dims))
        if (!parts.empty())
          visit(value, static_cast<int64_t>(dim), parts.front());
  };
  all(op->getOperands(), rule.operands);
  all(op->getResults(), rule.results);
}

void BatchFlow::visit(Operation *op) {
  if (!computed.count(op))
    return;
  ShardingRule rule = ShardingRule::of(op);
  SmallVector<bool> isBatch(rule.factors.size(), false);
  auto passes = [&](int64_t factor) {
    const Factor &info = rule.factors[factor];
    return (info.kind == FactorKind::PassThrough ||
            (info.kind == FactorKind::Reduction &&
             info.combiner != FactorCombiner::None)) &&
           info.size % batch == 0;
  };
  forEachDim(op, rule, [&](Value value, int64_t dim, int64_t factor) {
    isBatch[factor] =
        isBatch[factor] || (isMarked(value, dim) && passes(factor));
  });
  forEachDim(op, rule, [&](Value value, int64_t dim, int64_t factor) {
    if (isBatch[factor])
      set(value, dim);
  });
  // In a batch of one sample, the batch dimension has size 1 and therefore no
  // factor in sharding rules. So the rule of a reshape does not connect the
  // batch dimensions of its operand and result; this is done here.
  if (auto reshape = dyn_cast<nn::ReshapeOp>(op); reshape && batch == 1) {
    Value from = reshape.getInput(), to = reshape.getResult();
    for (auto [source, target] : {std::pair(from, to), std::pair(to, from)})
      if (typeOf(source).getRank() && typeOf(target).getRank() &&
          isMarked(source, 0) && typeOf(source).getDimSize(0) == 1 &&
          typeOf(target).getDimSize(0) == 1)
        set(target, 0);
  }
}

void BatchFlow::findMixing(Operation *op) {
  bool depends = false, mixes = false;
  for (Value operand : op->getOperands()) {
    depends |= isBatched(operand);
    mixes |= isMixed(operand);
  }
  if (!depends)
    return;
  ShardingRule rule = ShardingRule::of(op);
  if (batch > 1)
    for (auto [operand, dims] : llvm::zip(op->getOperands(), rule.operands))
      for (auto [dim, parts] : llvm::enumerate(dims))
        mixes |= isMarked(operand, dim) && !parts.empty() &&
                 rule.factors[parts.front()].kind != FactorKind::PassThrough;
  for (Value result : op->getResults()) {
    batched.insert(result);
    if (mixes)
      mixed.insert(result);
  }
}
