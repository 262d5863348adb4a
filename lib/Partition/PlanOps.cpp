//===- PlanOps.cpp - dist-plan-ops ----------------------------------------===//
//
// Chooses, operation by operation in program order, the axes of each factor and
// what stays partial. Layouts of operands are known by then, those of results
// are asked for by propagation.
//
//===----------------------------------------------------------------------===//

#include "LocalCost.h"
#include "PlanRemarks.h"
#include "Regions.h"
#include "cleave/Partition/FactorGraph.h"
#include "cleave/Partition/Passes.h"
#include "cleave/Partition/Reshard.h"

#include "llvm/ADT/StringSet.h"

namespace cleave {
#define GEN_PASS_DEF_DISTPLANOPSPASS
#include "cleave/Partition/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

namespace {

/// FLOPs for each element of operands and results of what counts as a product.
constexpr double kProduct = 8;
/// More assignments than this are not weighed; the first ones are enough.
constexpr size_t kMaxAssignments = 512;

/// The choice for one operation.
struct Choice {
  SmallVector<Axes> factors;
  AxisSet carry = 0;
  ReduceKind carryKind = ReduceKind::Sum;
  /// The operands that are read as addends over `carry`.
  ArrayRef<unsigned> group;
};

/// Whether `need` has the splits of `have`, and beside them only what
/// scattering the addends of `have` gives.
bool isScattered(const Layout &have, const Layout &need) {
  for (auto [had, wanted] : llvm::zip_equal(have.dims, need.dims))
    if (wanted.size() < had.size() || !std::equal(had.begin(), had.end(), wanted.begin()) ||
        setOf(ArrayRef<Axis>(wanted).drop_front(had.size())) & ~have.partial)
      return false;
  return true;
}

class OpPlanner {
public:
  OpPlanner(const MeshAxes &mesh, const Cluster &cluster, const cost::LinkModel &links,
            ReshardPlanner &reshards)
      : mesh(mesh), cluster(cluster), links(links), reshards(reshards) {}

  /// Layouts that values have, partial axes included.
  void setLayout(Value value, Layout layout) { layouts[value] = std::move(layout); }
  bool hasLayout(Value value) const { return layouts.contains(value); }
  const Layout &layoutOf(Value value) const { return layouts.find(value)->second; }

  Choice choose(Operation *op, const ShardingRule &rule, ArrayRef<Layout> asked) {
    Choice best;
    best.factors = agreed(op, rule, asked);
    if (best.factors.empty())
      best.factors = cheapest(op, rule, asked);
    addCarry(op, rule, best);
    return best;
  }

  /// The layout in which result `index` appears.
  Layout produced(const ShardingRule &rule, const Choice &choice, unsigned index) const {
    return producedLayout(rule, choice.factors, choice.carry, choice.carryKind, index);
  }

  /// Whether the value, `kept` as it is made, lacks splits only that scattering it would
  /// give, and is read by a sum alone, perhaps widened or rounded before: what it is added
  /// to may be partial too, so that there is one reduction of the sum. Or it is rounded
  /// alone, so that less is sent behind that.
  static bool isReducedLater(Value value, const Layout &kept, const Layout &asked) {
    if (!kept.partial || !isScattered(kept, asked))
      return false;
    constexpr unsigned kMaxSteps = 8;
    const int64_t bytes = bytesOf(value.getType());
    for (unsigned step = 0; step < kMaxSteps && value.hasOneUse(); ++step) {
      OpOperand &use = *value.use_begin();
      Operation *user = use.getOwner();
      ShardingRule rule = ruleOf(user);
      if (rule.isAddend(use.getOperandNumber()))
        return true;
      if (rule.groupOf(use.getOperandNumber()).empty() || user->getNumOperands() != 1 ||
          user->getNumResults() != 1 || rule.operands[0] != rule.results[0])
        return false;
      value = user->getResult(0);
      if (bytesOf(value.getType()) < bytes)
        return true;
    }
    return false;
  }

private:
  using Candidates = SmallVector<SmallVector<Axes, 2>>;

  template <typename Fn>
  void forEachDim(Operation *op, const ShardingRule &rule, ArrayRef<Layout> asked, Fn fn) const {
    for (auto [index, dims] : llvm::enumerate(rule.results))
      for (auto [dim, made] : llvm::enumerate(dims))
        fn(made, asked[index].dims[dim]);
    for (auto [index, dims] : llvm::enumerate(rule.operands)) {
      Value operand = op->getOperand(index);
      if (hasLayout(operand))
        for (auto [dim, made] : llvm::enumerate(dims))
          fn(made, layoutOf(operand).dims[dim]);
    }
  }

  /// The axes of the factors where all tensors say the same; empty where they
  /// do not. (A rule without factors agrees: one empty assignment is marked by
  /// the rule's own emptiness.)
  SmallVector<Axes> agreed(Operation *op, const ShardingRule &rule, ArrayRef<Layout> asked) const {
    size_t count = rule.factors.size();
    SmallVector<Axes> axes(count);
    SmallVector<bool> seen(count, false);
    bool agree = true;
    forEachDim(op, rule, asked, [&](const DimFactors &made, const Axes &split) {
      size_t used = 0;
      for (auto [factor, part] : llvm::zip_equal(made, axesOfFactors(made, rule, split, mesh))) {
        used += part.size();
        if (!part.empty() && rule.factors[factor].kind == FactorKind::NeedReplication)
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

  bool isValid(const ShardingRule &rule, ArrayRef<Axes> axes) const {
    AxisSet used = 0;
    for (const Axes &list : axes) {
      if (used & setOf(list))
        return false;
      used |= setOf(list);
    }
    auto expressible = [&](const TensorFactors &dims) {
      return llvm::all_of(
          dims, [&](const DimFactors &dim) { return isExpressible(dim, rule, axes, mesh); });
    };
    return llvm::all_of(rule.operands, expressible) && llvm::all_of(rule.results, expressible);
  }

  /// Modelled seconds: to bring operands and results to where they are needed,
  /// to compute a rank's part, and what that sends by itself.
  double cost(Operation *op, const ShardingRule &rule, ArrayRef<Layout> asked,
              ArrayRef<Axes> axes) const {
    double total = 0, elements = 0;
    Choice choice;
    choice.factors.assign(axes.begin(), axes.end());
    addCarry(op, rule, choice);
    auto move = [&](RankedTensorType type, int64_t bytes, const Layout &from, const Layout &to) {
      total += reshards.seconds(type.getShape(), bytes, from,
                                reshards.plan(type.getShape(), bytes, from, to));
    };
    for (auto [index, dims] : llvm::enumerate(rule.operands)) {
      Value operand = op->getOperand(index);
      auto type = cast<RankedTensorType>(operand.getType());
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
      auto type = cast<RankedTensorType>(op->getResult(index).getType());
      elements += type.getNumElements();
      Layout made = produced(rule, choice, index);
      int64_t bytes = elementBytes(type);
      // An addend of a sum is reduced there: that it is widened before is no cost.
      if (choice.carry && isReducedLater(op->getResult(index), made, asked[index]) &&
          isSummedLater(op, choice.carry))
        for (unsigned operand : choice.group)
          bytes = std::min(bytes,
                           elementBytes(cast<RankedTensorType>(op->getOperand(operand).getType())));
      move(type, bytes, made, asked[index]);
    }
    int64_t ways = 1;
    for (const Axes &list : axes)
      ways *= mesh.size(list);
    double flops = 0;
    if (auto model = dyn_cast<CostInterface>(op))
      flops = model.getFlops();
    // What is no product is part of a kernel of several operations, and takes
    // what its FLOPs do at best.
    double seconds = 0;
    if (flops > kProduct * elements)
      seconds = cluster.matmulSeconds(flops / ways);
    else if (!cluster.matmul.empty())
      seconds = flops / ways / cluster.matmul.back().second;
    return total + seconds + secondsWithin(op, rule, axes, mesh, links);
  }

  /// Weighs assignments of the axes that tensors have to factors.
  SmallVector<Axes> cheapest(Operation *op, const ShardingRule &rule,
                             ArrayRef<Layout> asked) const {
    size_t count = rule.factors.size();
    Candidates candidates(count);
    forEachDim(op, rule, asked, [&](const DimFactors &made, const Axes &split) {
      for (auto [factor, part] : llvm::zip_equal(made, axesOfFactors(made, rule, split, mesh)))
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
          << " ways to run on the axes of its tensors; the others, also of further such "
             "operations, were not weighed";
    return best;
  }

  /// Whether the result goes, without another reader, into a sum with addends
  /// over `axes`, or is asked for as addends, or leaves the function as these: then
  /// it is reduced there, and a reduction before it would be one more.
  bool isSummedLater(Operation *op, AxisSet axes) const {
    constexpr unsigned kMaxSteps = 8;
    auto has = [&](const Layout &layout) {
      return (layout.partial & axes) == axes && layout.kind == ReduceKind::Sum;
    };
    for (unsigned step = 0; step < kMaxSteps; ++step) {
      if (op->getNumResults() != 1 || !op->hasOneUse())
        return false;
      OpOperand &use = *op->use_begin();
      unsigned number = use.getOperandNumber();
      op = use.getOwner();
      if (auto func = dyn_cast<func::FuncOp>(op->getParentOp());
          func && op->hasTrait<OpTrait::IsTerminator>()) {
        auto sharding = func.getResultAttrOfType<ShardingAttr>(number, kShardingAttrName);
        return sharding && has(mesh.layout(sharding));
      }
      if (auto constrain = dyn_cast<ConstrainOp>(op))
        return has(mesh.layout(constrain.getSharding()));
      if (op->getNumRegions() != 0)
        return false;
      ShardingRule rule = ShardingRule::of(op);
      ArrayRef<unsigned> group = rule.groupOf(number);
      if (group.empty())
        return false;
      for (unsigned other : group)
        if (Value origin = other == number ? Value() : originOf(op->getOperand(other)))
          return has(layoutOf(origin));
    }
    return false;
  }

  /// The value, or what it will be made of by operations that are linear in it alone
  /// and have no layout yet. Null where there is none with a layout, or another reader
  /// needs the sum of what has none.
  Value originOf(Value value) const {
    constexpr unsigned kMaxSteps = 8;
    for (unsigned step = 0; step < kMaxSteps && !hasLayout(value); ++step) {
      Operation *op = value.getDefiningOp();
      if (!op || !value.hasOneUse() || op->getNumOperands() != 1 ||
          ShardingRule::of(op).groupOf(0).size() != 1)
        return {};
      value = op->getOperand(0);
      if (!value.hasOneUse())
        return {};
    }
    return hasLayout(value) ? value : Value();
  }

  /// Lets addends pass through the operation where that defers a reduction.
  void addCarry(Operation *op, const ShardingRule &rule, Choice &choice) const {
    if (isa<ConstrainOp>(op))
      return;
    for (ArrayRef<unsigned> group : rule.linear) {
      AxisSet all = 0, common = ~AxisSet(0);
      ReduceKind kind = ReduceKind::Sum;
      bool fits = true, scalar = true;
      int64_t bytes = 0;
      for (unsigned index : group) {
        Value operand = op->getOperand(index);
        if (isZeroConstant(operand))
          continue;
        if (!hasLayout(operand)) {
          common = 0;
          continue;
        }
        const Layout &have = layoutOf(operand);
        // Who else reads it needs the sum anyway, and shares it.
        fits &= have.partial == 0 || operand.hasOneUse();
        fits &= have.partial == 0 ||
                isScattered(have, cleave::layoutOf(rule.operands[index], choice.factors));
        if (have.partial) {
          fits &= all == 0 || have.kind == kind;
          kind = have.kind;
        }
        scalar &= cast<RankedTensorType>(operand.getType()).getRank() == 0;
        all |= have.partial;
        common &= have.partial;
        bytes += bytesOf(operand.getType());
      }
      if (!all || !fits)
        continue;
      if (kind != ReduceKind::Sum && !rule.movement)
        continue;
      // Operands outside the group are read as they are.
      for (auto [index, operand] : llvm::enumerate(op->getOperands()))
        if (!llvm::is_contained(group, unsigned(index)) && hasLayout(operand) &&
            layoutOf(operand).partial & all)
          fits = false;
      if (!fits)
        continue;
      // Scalars become addends for nothing; for others all must be partial.
      AxisSet carry = scalar && kind == ReduceKind::Sum ? all : common & all;
      for (const Axes &list : choice.factors)
        carry &= ~setOf(list);
      if (!carry)
        continue;
      int64_t resultBytes = 0;
      for (Type type : op->getResultTypes())
        resultBytes += bytesOf(type);
      if (resultBytes > bytes && !isSummedLater(op, carry))
        continue;
      choice.carry = carry;
      choice.carryKind = kind;
      choice.group = group;
      // Reductions of another kind do not mix with what is carried.
      for (unsigned index = 0; index < op->getNumResults(); ++index) {
        Choice without = choice;
        without.carry = 0;
        Layout own = produced(rule, without, index);
        if (own.partial && own.kind != kind) {
          choice.carry = 0;
          choice.group = {};
        }
      }
      if (choice.carry)
        return;
    }
  }

  const MeshAxes &mesh;
  const Cluster &cluster;
  const cost::LinkModel &links;
  ReshardPlanner &reshards;
  llvm::DenseMap<Value, Layout> layouts;
  /// Names of operations of which not all assignments were weighed.
  mutable llvm::StringSet<> cutKinds;
};

struct DistPlanOpsPass : cleave::impl::DistPlanOpsPassBase<DistPlanOpsPass> {
  using Base::Base;

  void runOnOperation() override {
    FailureOr<MeshAxes> mesh = MeshAxes::of(getOperation());
    if (failed(mesh))
      return signalPassFailure();
    FailureOr<Cluster> machine = cost::loadCluster(getOperation(), cluster);
    if (failed(machine))
      return signalPassFailure();
    // Collectives that are ready together go as one message later: which of them
    // a latency belongs to is not known here, so that only bytes take time. What
    // is chosen then does not depend on how small a model is.
    for (auto &[name, link] : machine->links)
      link.latency = link.message = 0;
    auto links = cost::LinkModel::of(getOperation(), *mesh, *machine);
    ReshardPlanner reshards(*mesh, links);
    for (auto func : getOperation().getOps<func::FuncOp>()) {
      OpPlanner planner(*mesh, *machine, links, reshards);
      if (!func.isExternal() && failed(planFunction(func, *mesh, planner)))
        return signalPassFailure();
      if (remarks && !func.isExternal())
        reportPartials(func, *mesh);
    }
  }

  LogicalResult planFunction(func::FuncOp func, const MeshAxes &mesh, OpPlanner &planner) {
    for (auto [index, argument] : llvm::enumerate(func.getArguments())) {
      auto type = dyn_cast<RankedTensorType>(argument.getType());
      if (!type)
        continue;
      auto sharding = func.getArgAttrOfType<ShardingAttr>(index, kShardingAttrName);
      planner.setLayout(argument, sharding ? mesh.layout(sharding) : Layout(type.getRank()));
    }
    return planBlock(func.getBody().front(), mesh, planner);
  }

  /// Values have the layout asked for wherever a loop or branch has them.
  LogicalResult planRegions(Operation *op, ArrayRef<Layout> asked, const MeshAxes &mesh,
                            OpPlanner &planner) {
    SmallVector<Attribute> shardings;
    for (auto [value, layout] : llvm::zip_equal(carriedBy(op), asked)) {
      if (value.argument)
        planner.setLayout(value.argument, layout);
      planner.setLayout(value.result, layout);
      shardings.push_back(mesh.sharding(layout));
    }
    op->setAttr(kShardingAttrName, ArrayAttr::get(&getContext(), shardings));
    for (Region &region : op->getRegions())
      if (!region.empty() && failed(planBlock(region.front(), mesh, planner)))
        return failure();
    return success();
  }

  LogicalResult planBlock(Block &block, const MeshAxes &mesh, OpPlanner &planner) {
    for (Operation &op : block.without_terminator()) {
      if (partition::isScalarOp(&op) || partition::isGenerator(&op) || op.getNumResults() == 0)
        continue;
      if (!llvm::all_of(op.getResultTypes(), llvm::IsaPred<RankedTensorType>))
        return op.emitOpError("has a result that is no tensor and cannot be partitioned");
      auto given = op.getAttrOfType<ArrayAttr>(kShardingAttrName);
      SmallVector<Layout> asked;
      for (auto [index, type] : llvm::enumerate(op.getResultTypes()))
        asked.push_back(given ? mesh.layout(cast<ShardingAttr>(given[index]))
                              : Layout(cast<RankedTensorType>(type).getRank()));
      if (isLoopOrBranch(&op)) {
        for (Layout &layout : asked)
          layout = layout.reduced();
        if (failed(planRegions(&op, asked, mesh, planner)))
          return failure();
        continue;
      }
      // A constraint is a reshard of its operand, nothing else.
      if (isa<ConstrainOp>(op)) {
        planner.setLayout(op.getResult(0), asked[0]);
        continue;
      }
      ShardingRule rule = ruleOf(&op);
      Choice choice = planner.choose(&op, rule, asked);
      SmallVector<Attribute> shardings, factors;
      for (auto [index, result] : llvm::enumerate(op.getResults())) {
        // A result whose splits are not those asked for is moved there at once;
        // what is partial stays so until someone needs the sum.
        Layout kept = planner.produced(rule, choice, index);
        if (kept.dims != asked[index].dims &&
            !OpPlanner::isReducedLater(result, kept, asked[index])) {
          AxisSet split = asked[index].split();
          kept.dims = asked[index].dims;
          kept.partial &= ~split;
        }
        shardings.push_back(mesh.sharding(kept));
        planner.setLayout(result, kept);
      }
      for (const Axes &axes : choice.factors)
        factors.push_back(mesh.list(axes));
      Builder builder(&getContext());
      op.setAttr(kShardingAttrName, builder.getArrayAttr(shardings));
      op.setAttr(kPlanAttrName,
                 builder.getDictionaryAttr(
                     {builder.getNamedAttr("carry", mesh.list(choice.carry)),
                      builder.getNamedAttr("factors", builder.getArrayAttr(factors))}));
    }
    return success();
  }
};

} // namespace
