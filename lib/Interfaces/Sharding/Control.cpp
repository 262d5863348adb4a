// The sharding rule of nn.scan, derived from the rules of the operations in its
// region.
//
// A dimension may be split if all operations of an iteration compute a tile of
// their results from the same tile of their operands (FactorKind::PassThrough).
// Then each rank runs the loop on its tiles, and the loop contains no
// collective. Other dimensions, such as those over which an operation of the
// loop contracts, are not split: the operands that have such a dimension are
// gathered once, before the loop.

#include "Model.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::sharding;

namespace {

/// Finds out which dimensions of the values of a scan are split together. Each
/// set of such dimensions is a factor of the scan.
class ScanFactors {
public:
  explicit ScanFactors(nn::ScanOp scan) : scan(scan) {
    for (Value argument : scan.getBody()->getArguments())
      addValue(argument);
    for (Operation &op : scan.getBody()->without_terminator()) {
      for (Value result : op.getResults())
        addValue(result);
      addOperation(&op);
    }
    for (auto [argument, value] :
         llvm::zip_equal(scan.getCarriedArguments(), scan.getYieldedCarries()))
      for (auto [a, b] : llvm::zip_equal(sets[argument], sets[value]))
        unite(a, b);
    for (const auto &[value, dims] : sets)
      fixRepeated(setsOf(value));
    for (Operation &op : scan.getBody()->without_terminator()) {
      SmallVector<unsigned> known;
      for (std::optional<unsigned> set :
           setsOfFactors(&op, ShardingRule::of(&op)))
        if (set)
          known.push_back(*set);
      fixRepeated(known);
    }
  }

  ShardingRule rule() {
    ShardingRule rule;
    llvm::DenseMap<unsigned, int64_t> factorOf; // by set
    auto dims = [&](Value inside, bool hasTrips) {
      TensorFactors factors;
      if (hasTrips)
        factors.push_back(
            {rule.addFactor(scan.getTrips(), FactorKind::NeedReplication)});
      for (auto [dim, set] : llvm::enumerate(sets[inside])) {
        auto [entry, isNew] = factorOf.try_emplace(find(set), 0);
        if (isNew) {
          const Set &known = all[entry->first];
          entry->second =
              rule.addFactor(typeOf(inside).getDimSize(dim),
                             known.fixed ? FactorKind::NeedReplication
                                         : FactorKind::PassThrough);
          rule.factors.back().indexed = known.indexed;
        }
        factors.push_back({entry->second});
      }
      return factors;
    };
    for (BlockArgument argument : scan.getBody()->getArguments())
      rule.operands.push_back(dims(
          argument, llvm::is_contained(scan.getSliceArguments(), argument)));
    for (Value value : scan.getYieldedCarries())
      rule.results.push_back(dims(value, false));
    for (Value value : scan.getYieldedStacked())
      rule.results.push_back(dims(value, true));
    return rule;
  }

  /// Returns, for each dimension of a value of the region, the set of
  /// dimensions that are split together with it.
  SmallVector<unsigned> setsOf(Value value) {
    SmallVector<unsigned> found;
    for (unsigned set : sets.lookup(value))
      found.push_back(find(set));
    return found;
  }

  /// Returns, for each factor of an operation of the region, the set of those
  /// dimensions that consist of this factor. They are split together. Returns
  /// nullopt for a factor that occurs only in dimensions with several factors.
  SmallVector<std::optional<unsigned>> setsOfFactors(Operation *op,
                                                     const ShardingRule &rule) {
    SmallVector<std::optional<unsigned>> found(rule.factors.size());
    forEachDim(op, rule, [&](const DimFactors &made, unsigned set) {
      if (std::optional<int64_t> factor = onlyFactor(made, rule))
        found[*factor] = find(set);
    });
    return found;
  }

private:
  /// A node of a union-find forest. There is one node for each dimension of
  /// each value. The dimensions of one tree form a set, which its root
  /// represents.
  struct Set {
    unsigned parent;
    bool fixed = false;   // it may not be split
    bool indexed = false; // an element depends on its index (Factor::indexed)
  };

  unsigned find(unsigned set) {
    while (all[set].parent != set)
      set = all[set].parent = all[all[set].parent].parent;
    return set;
  }
  void unite(unsigned a, unsigned b) {
    a = find(a), b = find(b);
    all[a].fixed |= all[b].fixed;
    all[a].indexed |= all[b].indexed;
    all[b].parent = a;
  }

  void addValue(Value value) {
    SmallVector<unsigned> &dims = sets[value];
    for (int64_t dim = 0; dim < typeOf(value).getRank(); ++dim) {
      dims.push_back(all.size());
      all.push_back({unsigned(all.size())});
    }
  }

  /// Returns the only factor of a dimension, apart from factors of size 1.
  /// Returns nullopt if the dimension has several factors of a size above 1, or
  /// no factor.
  static std::optional<int64_t> onlyFactor(const DimFactors &made,
                                           const ShardingRule &rule) {
    std::optional<int64_t> only;
    for (int64_t factor : made)
      if (made.size() == 1 || rule.factors[factor].size > 1) {
        if (only)
          return std::nullopt;
        only = factor;
      }
    return only;
  }

  void
  forEachDim(Operation *op, const ShardingRule &rule,
             llvm::function_ref<void(const DimFactors &, unsigned)> visit) {
    auto visitAll = [&](Value value, const TensorFactors &dims) {
      for (auto [made, set] : llvm::zip(dims, sets[value]))
        visit(made, set);
    };
    for (auto [index, operand] : llvm::enumerate(op->getOperands()))
      visitAll(operand, rule.operands[index]);
    for (auto [index, result] : llvm::enumerate(op->getResults()))
      visitAll(result, rule.results[index]);
  }

  /// Marks sets that occur several times in `roots` as not splittable. `roots`
  /// are the sets of the dimensions of a value, or of the factors of an
  /// operation, and one mesh axis cannot split two of them.
  void fixRepeated(ArrayRef<unsigned> roots) {
    llvm::DenseSet<unsigned> seen;
    for (unsigned root : roots)
      if (!seen.insert(root).second)
        all[root].fixed = true;
  }

  void addOperation(Operation *op) {
    ShardingRule rule = ShardingRule::of(op);
    SmallVector<std::optional<unsigned>> first(rule.factors.size());
    // Whether each factor is in a dimension together with other factors.
    SmallVector<bool> shared(rule.factors.size());
    forEachDim(op, rule, [&](const DimFactors &made, unsigned set) {
      std::optional<int64_t> factor = onlyFactor(made, rule);
      if (!factor) {
        all[find(set)].fixed = true;
        for (int64_t part : made)
          shared[part] = true;
        return;
      }
      if (first[*factor])
        unite(*first[*factor], set);
      first[*factor] = set;
    });
    for (auto [factor, set] : llvm::enumerate(first)) {
      if (!set)
        continue;
      Set &root = all[find(*set)];
      root.fixed |= shared[factor] ||
                    rule.factors[factor].kind != FactorKind::PassThrough;
      root.indexed |= rule.factors[factor].indexed;
    }
  }

  nn::ScanOp scan;
  std::vector<Set> all;
  llvm::DenseMap<Value, SmallVector<unsigned>> sets; // of each dimension
};

ShardingRule scan(nn::ScanOp op) { return ScanFactors(op).rule(); }

/// Builds the per-rank code of a scan: the same loop, with each operation in it
/// replaced by its per-rank code.
LogicalResult planScan(nn::ScanOp op, LocalPlan &plan) {
  ScanFactors factors(op);
  llvm::DenseMap<unsigned, SmallVector<dist::Axis>> axesOf; // by set
  auto note = [&](Value inside, const TensorFactors &dims, size_t first) {
    for (auto [set, made] : llvm::zip_equal(factors.setsOf(inside),
                                            ArrayRef(dims).drop_front(first)))
      axesOf[set] = llvm::to_vector(plan.axesOf(made[0]));
  };
  for (auto [index, argument] : llvm::enumerate(op.getBody()->getArguments()))
    note(argument, plan.rule().operands[index],
         llvm::is_contained(op.getSliceArguments(), argument));
  for (auto [index, value] :
       llvm::enumerate(op.getBody()->getTerminator()->getOperands()))
    note(value, plan.rule().results[index], index >= op.getInits().size());

  ValueRange operands = plan.localOperands();
  size_t inits = op.getInits().size(), slices = op.getSlices().size();
  SmallVector<Type> stacked;
  for (size_t index = inits; index < op.getNumResults(); ++index) {
    RankedTensorType type = plan.resultType(index);
    stacked.push_back(type.clone(type.getShape().drop_front()));
  }
  auto local = nn::ScanOp::create(
      plan.builder(), plan.loc(), op.getTrips(), operands.take_front(inits),
      operands.slice(inits, slices), operands.drop_front(inits + slices),
      stacked, op.getReverse());
  IRMapping mapping;
  mapping.map(op.getBody()->getArguments(), local.getBody()->getArguments());
  OpBuilder inner = OpBuilder::atBlockEnd(local.getBody());
  for (Operation &each : op.getBody()->without_terminator()) {
    ShardingRule rule = ShardingRule::of(&each);
    SmallVector<dist::Axes> axes;
    for (std::optional<unsigned> set : factors.setsOfFactors(&each, rule)) {
      auto found = set ? axesOf.find(*set) : axesOf.end();
      axes.emplace_back();
      if (found != axesOf.end())
        axes.back().assign(found->second.begin(), found->second.end());
    }
    SmallVector<Value> inputs;
    for (Value operand : each.getOperands())
      inputs.push_back(mapping.lookup(operand));
    LocalPlan inside(&each, inner, plan.mesh(), rule, axes, inputs);
    if (auto sharded = dyn_cast<ShardingRuleInterface>(each)) {
      if (failed(sharded.planLocal(inside)))
        return failure();
    } else {
      inside.setResults(inside.cloneLocal()->getResults());
    }
    for (auto [from, to] :
         llvm::zip_equal(each.getResults(), inside.localResults()))
      mapping.map(from, to);
  }
  SmallVector<Value> yielded;
  for (Value value : op.getBody()->getTerminator()->getOperands())
    yielded.push_back(mapping.lookup(value));
  nn::YieldOp::create(inner, op.getBody()->getTerminator()->getLoc(), yielded);
  plan.setResults(local.getResults());
  return success();
}

} // namespace

void cleave::sharding::attachControl(MLIRContext *context) {
  attach<nn::ScanOp, scan, planScan>(context);
}
