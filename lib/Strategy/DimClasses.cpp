// Finds the dimension classes of a function: sets of dimensions, of one or
// several values, that must be sharded alike (DimClasses.h). Dimensions that
// consist of the same factor of an operation's sharding rule are united in a
// union-find structure.

#include "DimClasses.h"

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Dialect/NN/Transforms/PositionFlow.h"
#include "cleave/Support/ValueUtils.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::strategy;

/// Calls `visit(value, dimension, factors of the dimension)`.
template <typename Visit>
static void forEachDim(Operation *op, const ShardingRule &rule, Visit visit) {
  for (auto [value, dims] : llvm::zip(op->getOperands(), rule.operands))
    for (auto [dim, factors] : llvm::enumerate(dims))
      visit(value, static_cast<int64_t>(dim), factors);
  for (auto [value, dims] : llvm::zip(op->getResults(), rule.results))
    for (auto [dim, factors] : llvm::enumerate(dims))
      visit(value, static_cast<int64_t>(dim), factors);
}

/// Returns whether the operation is a constant. Constants are cloned for each
/// use, so two uses of a constant may be sharded differently, and the constant
/// does not unite their dimension classes.
static bool isConstant(Operation *op) {
  return op->hasTrait<OpTrait::ConstantLike>();
}

DimClasses::DimClasses(func::FuncOp func) {
  Block &body = func.getBody().front();
  for (BlockArgument argument : body.getArguments())
    for (int64_t dim : llvm::seq<int64_t>(0, typeOf(argument).getRank()))
      dimOf(argument, dim);
  for (Operation &op : body.without_terminator())
    if (!isConstant(&op))
      connect(&op, nn::connectionsOf(&op));
  collect(func);
  for (Operation &op : body.without_terminator())
    if (!isConstant(&op))
      collectOperation(&op, nn::connectionsOf(&op));
}

DimClasses::Dim DimClasses::dimOf(Value value, int64_t dim) {
  auto [it, isNew] =
      numbers.insert({{value, dim}, static_cast<Dim>(sizes.size())});
  if (isNew) {
    sizes.push_back(typeOf(value).getDimSize(dim));
    unions.insert(it->second);
  }
  return it->second;
}

void DimClasses::connect(Operation *op, const ShardingRule &rule) {
  SmallVector<std::optional<Dim>> first(rule.factors.size());
  forEachDim(
      op, rule, [&](Value value, int64_t dim, const DimFactors &factors) {
        Dim here = dimOf(value, dim);
        // A dimension made of several factors is a class of its own, because no
        // factor covers it alone.
        if (factors.size() != 1)
          return;
        if (Operation *def = value.getDefiningOp(); def && isConstant(def))
          return;
        std::optional<Dim> &other = first[factors[0]];
        if (other)
          unions.unionSets(*other, here);
        else
          other = here;
      });
  if (std::optional<int64_t> dim = nn::reorderedDim(op))
    unions.unionSets(dimOf(op->getOperand(0), *dim),
                     dimOf(op->getResult(0), *dim));
}

std::optional<unsigned> DimClasses::indexOf(Value value, int64_t dim) const {
  auto it = numbers.find({value, dim});
  if (it == numbers.end())
    return std::nullopt;
  return indexOfLeader.lookup(unions.getLeaderValue(it->second));
}

DimClass *DimClasses::classOf(Value value, int64_t dim) {
  std::optional<unsigned> index = indexOf(value, dim);
  return index ? &found[*index] : nullptr;
}

/// Numbers the dimension classes, and finds the parameters and inputs that have
/// a dimension of each class.
void DimClasses::collect(func::FuncOp func) {
  for (auto &[key, number] : numbers) {
    Dim leader = unions.getLeaderValue(number);
    auto [it, isNew] = indexOfLeader.insert({leader, found.size()});
    if (isNew) {
      found.emplace_back();
      found.back().size = sizes[number];
    }
    // If a class also has dimensions of size 1, which are broadcast, its size
    // is that of the larger dimensions.
    DimClass &dims = found[it->second];
    dims.size = std::max(dims.size, sizes[number]);
  }
  DenseMap<Value, SmallVector<DimClass *>> seen;
  for (auto &[key, number] : numbers) {
    DimClass *dims = classOf(key.first, key.second);
    SmallVector<DimClass *> &inValue = seen[key.first];
    if (llvm::is_contained(inValue, dims))
      dims->splittable = false;
    inValue.push_back(dims);
    auto argument = dyn_cast<BlockArgument>(key.first);
    if (!argument)
      continue;
    std::optional<nn::Role> role = nn::roleOf(argument);
    if (role == nn::Role::Parameter)
      dims->parameterDims.push_back({argument.getArgNumber(), key.second});
    else if (!nn::isOneOf(role, {nn::Role::Gradient, nn::Role::Constant,
                                 nn::Role::Buffer}))
      dims->splittable = false; // samples and positions are not split by tensor
                                // parallelism
  }
}

bool strategy::isParameter(Value value) {
  auto argument = dyn_cast<BlockArgument>(value);
  return argument && nn::roleOf(argument) == nn::Role::Parameter;
}

/// Returns the FLOPs (two per multiply-add) if the operation reduces over a
/// dimension of a parameter; otherwise 0.
static int64_t contractionWork(Operation *op, const ShardingRule &rule) {
  int64_t reduced = 1;
  bool isContraction = false;
  for (auto [value, dims] : llvm::zip(op->getOperands(), rule.operands)) {
    if (!isParameter(value))
      continue;
    for (const DimFactors &factors : dims)
      for (int64_t factor : factors)
        if (rule.factors[factor].kind == FactorKind::Reduction) {
          reduced *= rule.factors[factor].size;
          isContraction = true;
        }
  }
  if (!isContraction)
    return 0;
  auto type = typeOf(op->getResult(0));
  return 2 * reduced * type.getNumElements();
}

ArrayRef<unsigned> strategy::termsOf(const ShardingRule &rule) {
  for (const auto &group : rule.linear)
    if (group.size() > 1)
      return group;
  return {};
}

Value strategy::sumThatReceives(Value value) {
  while (value.hasOneUse()) {
    OpOperand &use = *value.getUses().begin();
    Operation *user = use.getOwner();
    if (user->getNumResults() != 1 ||
        user->getResult(0).getType() != value.getType())
      break;
    if (!ShardingRule::of(user).isTerm(use.getOperandNumber()))
      break;
    value = user->getResult(0);
  }
  return value;
}

/// Returns whether the operation reduces over a factor and its result has the
/// factor, too. An example is a normalization over the features. If such a
/// factor is split, every such operation communicates in the forward and the
/// backward pass. So only strategies that deliberately split the features do
/// this.
static bool isRowOf(const ShardingRule &rule, int64_t factor) {
  return isJoint(rule.factors[factor]) &&
         llvm::any_of(rule.results, [&](const TensorFactors &dims) {
           return llvm::any_of(dims, [&](const DimFactors &made) {
             return llvm::is_contained(made, factor);
           });
         });
}

void DimClasses::collectOperation(Operation *op, const ShardingRule &rule) {
  // For each factor of the rule, the class of the dimensions that consist of
  // this factor alone.
  SmallVector<DimClass *> classes(rule.factors.size(), nullptr);
  forEachDim(
      op, rule, [&](Value value, int64_t dim, const DimFactors &factors) {
        if (factors.size() == 1 && !classes[factors[0]]) {
          Operation *def = value.getDefiningOp();
          if (!def || !isConstant(def))
            classes[factors[0]] = classOf(value, dim);
        }
        for (int64_t factor : factors)
          if (isRowOf(rule, factor) ||
              rule.factors[factor].kind == FactorKind::NeedReplication ||
              rule.factors[factor].kind == FactorKind::Permutation ||
              factors.size() != 1)
            if (DimClass *dims = classOf(value, dim); dims && dims->size > 1)
              dims->splittable = false;
      });
  std::optional<unsigned> contraction;
  if (int64_t work = contractionWork(op, rule)) {
    contraction = flops.size();
    flops.push_back(work);
  }
  for (auto [factor, dims] : llvm::zip(rule.factors, classes)) {
    if (!dims)
      continue;
    if (contraction)
      dims->divides.push_back(*contraction);
    if (factor.kind != FactorKind::Reduction)
      continue;
    for (Value result : op->getResults()) {
      Value root = sumThatReceives(result);
      if (dims->partialRoots.insert(root.getAsOpaquePointer()).second)
        dims->partialBytes += bytesOf(root.getType());
    }
  }
}
