//===- OpPlanner.cpp - the axes of an operation's factors -----------------===//

#include "OpPlanner.h"

#include "LocalCost.h"
#include "cleave/Support/ValueUtils.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

/// An operation with more than this number of FLOPs per element of its operands
/// and results is modelled as a matrix product with a rate of its own, other
/// operations as parts of fused kernels.
static constexpr double kProduct = 8;
/// At most this many assignments are evaluated.
static constexpr size_t kMaxAssignments = 512;

OpChoice OpPlanner::choose(Operation *op, const ShardingRule &rule,
                           ArrayRef<Layout> asked) {
  OpChoice best;
  best.factors = agreed(op, rule, asked);
  if (best.factors.empty())
    best.factors = cheapest(op, rule, asked);
  addCarry(op, rule, best);
  return best;
}

SmallVector<Axes> OpPlanner::agreed(Operation *op, const ShardingRule &rule,
                                    ArrayRef<Layout> asked) const {
  size_t count = rule.factors.size();
  SmallVector<Axes> axes(count);
  SmallVector<bool> seen(count, false);
  bool agree = true;
  forEachDim(op, rule, asked, [&](const DimFactors &made, const Axes &split) {
    size_t used = 0;
    for (auto [factor, part] :
         llvm::zip_equal(made, axesOfFactors(made, rule, split, mesh))) {
      used += part.size();
      if (!part.empty() &&
          rule.factors[factor].kind == FactorKind::NeedReplication)
        agree = false;
      if (seen[factor] && axes[factor] != part)
        agree = false;
      axes[factor] = part;
      seen[factor] = true;
    }
    agree &= used == split.size();
  });
  if (!agree || !isValid(rule, axes))
    return {};
  return axes;
}

bool OpPlanner::isValid(const ShardingRule &rule, ArrayRef<Axes> axes) const {
  AxisSet used = 0;
  for (const Axes &list : axes) {
    if (used & setOf(list))
      return false;
    used |= setOf(list);
  }
  auto expressible = [&](const TensorFactors &dims) {
    return llvm::all_of(dims, [&](const DimFactors &dim) {
      return isExpressible(dim, rule, axes, mesh);
    });
  };
  return llvm::all_of(rule.operands, expressible) &&
         llvm::all_of(rule.results, expressible);
}

double OpPlanner::cost(Operation *op, const ShardingRule &rule,
                       ArrayRef<Layout> asked, ArrayRef<Axes> axes) const {
  double total = 0, elements = 0;
  OpChoice choice;
  choice.factors.assign(axes.begin(), axes.end());
  addCarry(op, rule, choice);
  auto move = [&](RankedTensorType type, int64_t bytes, const Layout &from,
                  const Layout &to) {
    total += reshards.seconds(type.getShape(), bytes, from,
                              reshards.plan(type.getShape(), bytes, from, to));
  };
  for (auto [index, dims] : llvm::enumerate(rule.operands)) {
    Value operand = op->getOperand(index);
    auto type = typeOf(operand);
    Layout need = cleave::layoutOf(dims, axes);
    elements += type.getNumElements();
    if (!hasLayout(operand))
      continue;
    if (llvm::is_contained(choice.group, index)) {
      need.partial = choice.carry;
      need.kind = choice.carryKind;
    }
    move(type, elementBytes(type), layoutOf(operand), need);
  }
  for (unsigned index = 0; index < op->getNumResults(); ++index) {
    auto type = typeOf(op->getResult(index));
    elements += type.getNumElements();
    Layout made = produced(rule, choice, index);
    int64_t bytes = elementBytes(type);
    // The result stays a partial sum, and a later operation adds it to another
    // partial sum; only their sum is reduced. If this operation extends its
    // operand to a wider type, the bytes of the operand's type are counted.
    // Otherwise it would seem cheaper to reduce the operand before it is
    // extended, although the later sum, which has the wider type, must be
    // reduced in any case.
    if (choice.carry &&
        isReducedLater(op->getResult(index), made, asked[index]) &&
        isSummedLater(op, choice.carry))
      for (unsigned operand : choice.group)
        bytes = std::min(bytes, elementBytes(typeOf(op->getOperand(operand))));
    move(type, bytes, made, asked[index]);
  }
  int64_t ways = 1;
  for (const Axes &list : axes)
    ways *= mesh.size(list);
  double flops = 0;
  if (auto model = dyn_cast<CostInterface>(op))
    flops = model.getFlops();
  // An operation that is not a product is part of a fused kernel, in which its
  // FLOPs run at the peak rate.
  double seconds = 0;
  if (flops > kProduct * elements)
    seconds = cluster.matmulSeconds(flops / ways);
  else if (!cluster.matmul.empty())
    seconds = flops / ways / cluster.matmul.back().second;
  return total + seconds + secondsWithin(op, rule, axes, mesh, links);
}

SmallVector<Axes> OpPlanner::cheapest(Operation *op, const ShardingRule &rule,
                                      ArrayRef<Layout> asked) const {
  size_t count = rule.factors.size();
  Candidates candidates(count);
  forEachDim(op, rule, asked, [&](const DimFactors &made, const Axes &split) {
    for (auto [factor, part] :
         llvm::zip_equal(made, axesOfFactors(made, rule, split, mesh)))
      if (rule.factors[factor].kind != FactorKind::NeedReplication)
        for (size_t length = part.size(); length > 0; --length) {
          Axes prefix(part.begin(), part.begin() + length);
          if (!llvm::is_contained(candidates[factor], prefix))
            candidates[factor].push_back(prefix);
        }
  });
  for (SmallVector<Axes, 2> &list : candidates)
    list.push_back({});

  SmallVector<Axes> axes(count), best(count);
  double bestCost = cost(op, rule, asked, best);
  size_t weighed = 0;
  bool isCut = false;
  auto visit = [&](auto &&self, size_t factor, AxisSet used) -> void {
    isCut |= weighed >= kMaxAssignments;
    if (isCut)
      return;
    if (factor == count) {
      ++weighed;
      if (!isValid(rule, axes))
        return;
      double value = cost(op, rule, asked, axes);
      if (value < bestCost) {
        bestCost = value;
        best = axes;
      }
      return;
    }
    for (const Axes &list : candidates[factor]) {
      if (used & setOf(list))
        continue;
      axes[factor] = list;
      self(self, factor + 1, used | setOf(list));
    }
    axes[factor].clear();
  };
  visit(visit, 0, 0);
  if (isCut && cutKinds.insert(op->getName().getStringRef()).second)
    emitRemark(op->getLoc())
        << op->getName() << " has more than " << kMaxAssignments
        << " ways to run on the axes of its tensors; the others, also of "
           "further such "
           "operations, were not weighed";
  return best;
}
