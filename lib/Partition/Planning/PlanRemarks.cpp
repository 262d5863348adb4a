//===- PlanRemarks.cpp - remarks on partial results -----------------------===//
//
// Emits remarks on partial results from the plans that dist-plan-ops attached
// to operations. The layouts of an operation's operands and results follow from
// the axes of its factors and from the axes over which it reads partial
// operands.
//
//===----------------------------------------------------------------------===//

#include "PlanRemarks.h"

#include "cleave/Partition/Propagation/FactorGraph.h"
#include "cleave/Partition/Utils/Describe.h"
#include "cleave/Partition/Utils/Regions.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"
#include <map>

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

namespace {

/// The plan that dist-plan-ops attached to an operation.
struct Plan {
  ShardingRule rule;
  SmallVector<Axes> factors;
  AxisSet carry = 0;
};

class Reporter {
public:
  Reporter(func::FuncOp func, const MeshAxes &mesh) : func(func), mesh(mesh) {}

  void run() {
    for (BlockArgument argument : func.getArguments())
      if (auto layout = layoutOf(argument); layout && layout->partial)
        sayAsked(argument, describe(argument) + " of @" + func.getName().str(),
                 *layout);
    func.getBody().front().walk<WalkOrder::PreOrder>(
        [&](Operation *op) { report(op); });
  }

private:
  std::optional<Plan> planOf(Operation *op) const {
    auto attr = op->getAttrOfType<PlanAttr>(kPlanAttrName);
    if (!attr)
      return std::nullopt;
    Plan plan;
    plan.rule = ruleOf(op);
    for (Attribute axes : attr.getFactors())
      plan.factors.push_back(
          mesh.decompose(cast<AxisListAttr>(axes).getAxes()));
    plan.carry = setOf(mesh.decompose(attr.getCarry().getAxes()));
    return plan;
  }

  /// Returns the planned layout of a value; nullopt for scalars, and for values
  /// that are emitted separately in each reader's layout.
  std::optional<Layout> layoutOf(Value value) const {
    if (auto result = dyn_cast<OpResult>(value)) {
      auto given =
          result.getOwner()->getAttrOfType<ArrayAttr>(kShardingAttrName);
      if (!given || partition::isGenerator(result.getOwner()))
        return std::nullopt;
      return mesh.layout(cast<ShardingAttr>(given[result.getResultNumber()]));
    }
    auto argument = cast<BlockArgument>(value);
    if (argument.getOwner() != &func.getBody().front())
      return std::nullopt; // Values carried by loops are never partial.
    auto given = func.getArgAttrOfType<ShardingAttr>(argument.getArgNumber(),
                                                     kShardingAttrName);
    return given ? std::optional(mesh.layout(given)) : std::nullopt;
  }

  /// Returns the operands that the operation reads as partial results.
  ArrayRef<unsigned> groupOf(Operation *op, const Plan &plan) const {
    for (ArrayRef<unsigned> group : plan.rule.linear)
      for (unsigned index : group)
        if (auto layout = layoutOf(op->getOperand(index));
            layout && layout->partial & plan.carry)
          return group;
    return {};
  }

  /// Returns the layout in which an operation reads its operand `use`.
  std::optional<Layout> needOf(OpOperand &use) const {
    Operation *op = use.getOwner();
    unsigned number = use.getOperandNumber();
    if (isa<func::ReturnOp>(op)) {
      auto given =
          func.getResultAttrOfType<ShardingAttr>(number, kShardingAttrName);
      return given ? std::optional(mesh.layout(given)) : std::nullopt;
    }
    if (op->hasTrait<OpTrait::IsTerminator>())
      return layoutOf(op->getParentOp()->getResult(number));
    if (isa<ConstrainOp>(op))
      return layoutOf(op->getResult(0));
    if (isLoopOrBranch(op))
      return layoutOf(
          op->getResult(number - (op->getNumOperands() - op->getNumResults())));
    std::optional<Plan> plan = planOf(op);
    if (!plan)
      return std::nullopt; // The reader takes a scalar.
    Layout need = cleave::layoutOf(plan->rule.operands[number], plan->factors);
    if (llvm::is_contained(groupOf(op, *plan), number))
      need.partial = plan->carry;
    return need;
  }

  /// Returns text such as "; it stays so until it is read: all-reduced where
  /// math.exp reads it".
  std::string whereReduced(Value value, const Layout &kept) const {
    // Maps each text that describes how readers reduce the value to the names
    // of these readers, each once.
    llvm::MapVector<std::string, llvm::SetVector<StringRef>,
                    std::map<std::string, unsigned>>
        ways;
    // Sorted in program order, because the use list begins with the last use.
    SmallVector<OpOperand *> uses;
    for (OpOperand &use : value.getUses())
      uses.push_back(&use);
    for (OpOperand *use : llvm::reverse(uses)) {
      Operation *reader = use->getOwner();
      Layout need = needOf(*use).value_or(Layout());
      AxisSet reduced = kept.partial & ~need.partial,
              scattered = reduced & need.split();
      auto add = [&](StringRef how, AxisSet axes, StringRef who) {
        if (!axes)
          return;
        std::string way = how.str();
        if (axes != kept.partial)
          way += " over " + describe(mesh.list(axes));
        ways[way + who.str()].insert(reader->getName().getStringRef());
      };
      add("reduce-scattered", scattered, " where it is read by ");
      add("all-reduced", reduced & ~scattered, " where it is read by ");
      bool isAsked = isa<func::ReturnOp, ConstrainOp>(reader);
      add(isAsked ? "left so, as asked," : "passed on",
          kept.partial & need.partial, " by ");
    }
    if (ways.empty())
      return "";
    std::string text = "; it stays so until it is read: ";
    llvm::raw_string_ostream out(text);
    llvm::interleaveComma(ways, out, [&](const auto &way) {
      out << way.first;
      llvm::interleave(way.second, out, " and ");
    });
    return text;
  }

  void sayAsked(Value value, const std::string &name,
                const Layout &layout) const {
    emitRemark(value.getLoc())
        << name << " is partial over " << describe(mesh.list(layout.partial))
        << " (" << stringifyReduceKind(layout.kind) << "), as asked"
        << whereReduced(value, layout);
  }

  void report(Operation *op) const {
    if (isa<ConstrainOp>(op))
      if (auto layout = layoutOf(op->getResult(0)); layout && layout->partial)
        sayAsked(op->getResult(0), op->getName().getStringRef().str(), *layout);
    std::optional<Plan> plan = planOf(op);
    if (!plan)
      return;
    ArrayRef<unsigned> group = groupOf(op, *plan);
    ReduceKind kind = ReduceKind::Sum;
    for (unsigned index : group)
      if (auto layout = layoutOf(op->getOperand(index));
          layout && layout->partial)
        kind = layout->kind;
    for (OpResult result : op->getResults()) {
      unsigned index = result.getResultNumber();
      Layout made =
          producedLayout(plan->rule, plan->factors, plan->carry, kind, index);
      if (!made.partial)
        continue;
      InFlightDiagnostic remark = emitRemark(op->getLoc());
      if (op->getNumResults() != 1)
        remark << "result " << index << " of ";
      remark << op->getName() << " is partial over "
             << describe(mesh.list(made.partial)) << " ("
             << stringifyReduceKind(made.kind) << ")";
      sayFactors(op, *plan, index, remark);
      if (plan->carry) {
        remark << (made.partial == plan->carry ? ", from " : "; over ");
        if (made.partial != plan->carry)
          remark << describe(mesh.list(plan->carry)) << " from ";
        SmallVector<std::string> from;
        for (unsigned operand : group)
          if (auto layout = layoutOf(op->getOperand(operand));
              layout && layout->partial & plan->carry &&
              !llvm::is_contained(from, describe(op->getOperand(operand))))
            from.push_back(describe(op->getOperand(operand)));
        remark << llvm::join(from, " and ")
               << (group.size() > 1 ? ", to reduce their sum once"
                                    : ", to reduce after it");
      }
      Layout kept = *layoutOf(result);
      if (AxisSet atOnce = made.partial & ~kept.partial)
        remark << "; reduce-scattered over " << describe(mesh.list(atOnce))
               << " at once, as the requested sharding splits it";
      if (kept.partial)
        remark << whereReduced(result, kept);
    }
  }

  /// Appends to the remark which sharded dimensions the operation reduces over.
  /// These make the result partial.
  void sayFactors(Operation *op, const Plan &plan, unsigned index,
                  InFlightDiagnostic &remark) const {
    StringRef separator = ": ";
    for (auto [factor, info] : llvm::enumerate(plan.rule.factors)) {
      auto has = [factor = int64_t(factor)](const DimFactors &dim) {
        return llvm::is_contained(dim, factor);
      };
      if (info.combiner == FactorCombiner::None ||
          plan.factors[factor].empty() ||
          llvm::any_of(plan.rule.results[index], has))
        continue;
      SmallVector<std::string> dims;
      for (auto [operand, made] : llvm::enumerate(plan.rule.operands))
        for (auto [dim, factors] : llvm::enumerate(made))
          if (has(factors))
            dims.push_back("dimension " + std::to_string(dim) + " of operand " +
                           std::to_string(operand));
      remark << separator << describe(mesh.list(plan.factors[factor]))
             << (plan.factors[factor].size() > 1 ? " split" : " splits")
             << " what it reduces, " << llvm::join(dims, " and ");
      separator = "; ";
    }
  }

  mutable func::FuncOp func; // Its accessors are not const.
  const MeshAxes &mesh;
};

} // namespace

void cleave::partition::reportPartials(func::FuncOp func,
                                       const MeshAxes &mesh) {
  Reporter(func, mesh).run();
}
