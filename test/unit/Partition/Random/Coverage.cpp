// Counts and prints the coverage of sharding rules.

#include "Coverage.h"

#include "cleave/Partition/Propagation/FactorGraph.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::random;

namespace {

StringRef nameOf(FactorKind kind) {
  switch (kind) {
  case FactorKind::PassThrough:
    return "pass-through";
  case FactorKind::Reduction:
    return "reduction";
  case FactorKind::NeedReplication:
    return "whole";
  case FactorKind::Permutation:
    return "permutation";
  }
  llvm_unreachable("unknown kind");
}

StringRef nameOf(Coverage::Column column) {
  static constexpr StringRef names[] = {"uneven", "sub-axis", "partial",
                                        "multi-user"};
  return names[column];
}

/// Returns the name under which a rule is counted. Operations of arith and math
/// share a few sharding rules; each nn operation has its own rule.
std::string ruleName(Operation *op, const ShardingRule &rule) {
  if (op->getName().getDialectNamespace() != "arith" &&
      op->getName().getDialectNamespace() != "math")
    return op->getName().getStringRef().str();
  if (isa<arith::SelectOp>(op))
    return "elementwise, choice";
  if (rule.linear.empty())
    return "elementwise";
  if (rule.linear.size() == 2)
    return "elementwise, product";
  return rule.linear[0].size() == 2 ? "elementwise, sum"
                                    : "elementwise, linear";
}

bool isPart(const MeshAxes &mesh, ArrayRef<Axis> axes) {
  return llvm::any_of(mesh.list(axes).getAxes(),
                      [](AxisRefAttr ref) { return !ref.isWhole(); });
}

} // namespace

void Coverage::note(ModuleOp module) {
  module.walk([&](Operation *op) {
    operations.insert(op->getName().getStringRef().str());
  });
}

void Coverage::add(ModuleOp module) {
  FailureOr<MeshAxes> mesh = MeshAxes::of(module);
  if (failed(mesh))
    return;
  note(module);
  llvm::DenseMap<Value, Layout> layouts;
  for (auto func : module.getOps<mlir::func::FuncOp>())
    for (auto [index, argument] : llvm::enumerate(func.getArguments()))
      if (auto given =
              func.getArgAttrOfType<ShardingAttr>(index, kShardingAttrName))
        layouts[argument] = mesh->layout(given);
  // A case counts once for each combination of a rule, a kind of factor and a
  // column of the coverage table.
  std::set<std::tuple<std::string, std::string, Column>> seen;
  module.walk<WalkOrder::PreOrder>([&](Operation *op) {
    auto given = op->getAttrOfType<ArrayAttr>(kShardingAttrName);
    if (!given)
      return;
    for (auto [index, result] : llvm::enumerate(op->getResults()))
      layouts[result] = mesh->layout(cast<ShardingAttr>(given[index]));
    if (auto loop = dyn_cast<scf::ForOp>(op))
      for (auto [argument, result] :
           llvm::zip_equal(loop.getRegionIterArgs(), loop.getResults()))
        layouts[argument] = layouts[result];
    addOperation(op, *mesh, layouts,
                 [&](auto... cell) { return seen.insert({cell...}).second; });
  });
}

void Coverage::addOperation(
    Operation *op, const MeshAxes &mesh,
    const llvm::DenseMap<Value, Layout> &layouts,
    llvm::function_ref<bool(std::string, std::string, Column)> isFirst) {
  ShardingRule rule = partition::ruleOf(op);
  std::string name = ruleName(op, rule);
  auto plan = op->getAttrOfType<PlanAttr>(kPlanAttrName);
  bool manyUsers = false, partial = plan && !plan.getCarry().getAxes().empty();
  auto look = [&](Value value) {
    manyUsers |= !value.use_empty() && !value.hasOneUse();
    auto it = layouts.find(value);
    partial |= it != layouts.end() && it->second.partial;
  };
  for (Value operand : op->getOperands())
    look(operand);
  for (Value result : op->getResults())
    look(result);
  // Values that a branch yields count like operands: they may be partial values
  // or have several readers.
  for (Region &region : op->getRegions())
    for (Block &block : region)
      for (Value value : block.getTerminator()->getOperands())
        look(value);
  for (auto [number, factor] : llvm::enumerate(rule.factors)) {
    if (factor.size == 1)
      continue;
    SmallVector<Axes> splits;
    if (plan)
      splits.push_back(mesh.decompose(
          cast<AxisListAttr>(plan.getFactors()[number]).getAxes()));
    // If an operation needs a factor replicated, its plan does not shard the
    // factor, but an operand or result may still be sharded along it. Such a
    // sharding also counts as a test of this factor.
    auto addTensor = [&](Value value, const TensorFactors &dims) {
      auto it = layouts.find(value);
      if (it == layouts.end())
        return;
      for (auto [dim, made] : llvm::enumerate(dims))
        if (llvm::is_contained(made, int64_t(number)) &&
            !it->second.dims[dim].empty())
          splits.push_back(it->second.dims[dim]);
    };
    for (auto [operand, dims] :
         llvm::zip_equal(op->getOperands(), rule.operands))
      addTensor(operand, dims);
    for (auto [result, dims] : llvm::zip_equal(op->getResults(), rule.results))
      addTensor(result, dims);
    bool split = false, uneven = false, part = false;
    for (const Axes &axes : splits) {
      split |= !axes.empty();
      uneven |= factor.size % mesh.size(axes) != 0;
      part |= isPart(mesh, axes);
    }
    std::string kind = nameOf(factor.kind).str();
    auto count = [&](Column column, bool holds) {
      auto &cell = cells[{name, kind}];
      if (holds && isFirst(name, kind, column))
        ++cell[column];
    };
    count(Uneven, uneven);
    count(SubAxis, part);
    count(Partial, partial);
    count(MultiUser, split && manyUsers);
  }
}

void Coverage::print(llvm::raw_ostream &out) const {
  out << llvm::formatv("{0,-28} {1,-14}", "rule", "factor");
  for (int column = 0; column < Columns; ++column)
    out << llvm::formatv(" {0,10}", nameOf(Column(column)));
  out << "\n";
  for (const auto &[key, counts] : cells) {
    out << llvm::formatv("{0,-28} {1,-14}", key.first, key.second);
    for (int64_t count : counts)
      out << llvm::formatv(" {0,10}", count);
    out << "\n";
  }
}

std::string Coverage::missing(MLIRContext *context, int64_t least) const {
  std::string text;
  llvm::raw_string_ostream out(text);
  for (const auto &[key, counts] : cells)
    for (int column = 0; column < Columns; ++column) {
      if (counts[column] < least)
        out << key.first << ", " << key.second << ", " << nameOf(Column(column))
            << ": " << counts[column] << " cases, expected at least " << least
            << "\n";
    }
  return text + unseen(context);
}

std::string Coverage::unseen(MLIRContext *context) const {
  std::string text;
  llvm::raw_string_ostream out(text);
  for (RegisteredOperationName name : context->getRegisteredOperations())
    if (name.hasInterface<ShardingRuleInterface>() &&
        !operations.count(name.getStringRef().str()))
      out << name.getStringRef()
          << " has a sharding rule and came up in no case\n";
  return text;
}
