// Chooses the shardings of parameters and their gradients under tensor
// parallelism, and finds out which dimensions of a function's values are
// "chosen" or "hidden", the two kinds of feature dimensions (TensorScheme.h).

#include "TensorPlan.h"

#include "cleave/Dialect/NN/IR/Batch.h"
#include "cleave/Dialect/NN/Transforms/PositionFlow.h"
#include "cleave/Support/ValueUtils.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::strategy;

void strategy::addAxes(Axes &axes, int64_t dim,
                       ArrayRef<dist::AxisRefAttr> more) {
  for (dist::AxisRefAttr axis : more)
    if (llvm::none_of(
            axes, [&](auto &list) { return llvm::is_contained(list, axis); }))
      axes[dim].push_back(axis);
}

/// If the operation sums over a dimension of an operand that is a parameter,
/// returns the index of this operand; otherwise nullopt.
static std::optional<unsigned> contractedParameter(Operation *op,
                                                   const ShardingRule &rule) {
  for (auto [index, dims] : llvm::enumerate(rule.operands))
    if (isParameter(op->getOperand(index)) &&
        llvm::any_of(dims, [&](const DimFactors &factors) {
          return llvm::any_of(factors, [&](int64_t factor) {
            return rule.factors[factor].kind == FactorKind::Reduction;
          });
        }))
      return index;
  return std::nullopt;
}

/// Calls `visit(operation, rule, operand)` for each operation that sums over a
/// dimension of a parameter; the parameter is operand number `operand`.
static void forEachContraction(
    func::FuncOp func,
    llvm::function_ref<void(Operation *, ShardingRule &, unsigned)> visit) {
  for (Operation &op : func.getBody().front().without_terminator()) {
    if (llvm::none_of(op.getOperands(), isParameter))
      continue;
    ShardingRule rule = ShardingRule::of(&op);
    if (std::optional<unsigned> operand = contractedParameter(&op, rule))
      visit(&op, rule, *operand);
  }
}

static StringRef parameterName(Value value) {
  auto argument = cast<BlockArgument>(value);
  auto func = cast<func::FuncOp>(argument.getOwner()->getParentOp());
  return nameOf(func.getArgAttrDict(argument.getArgNumber()));
}

//===----------------------------------------------------------------------===//
// Parameters
//===----------------------------------------------------------------------===//

/// Notes in `plan` how the parameter's first matrix product uses the
/// parameter's dimensions: the product contracts one (Side::In), and has
/// another in the result (Side::Out). A dimension that tensor parallelism
/// splits (heads, MLP width, vocabulary) is already marked as chosen. If one of
/// the two is chosen, the other becomes hidden (the model's hidden size), if it
/// can be split.
static void
planProduct(ParameterPlan &plan, const ShardingRule &rule,
            const TensorFactors &dims, const TensorScheme &scheme,
            llvm::function_ref<bool(int64_t, const TensorScheme::List &)>
                isSplittable) {
  auto sideOf = [&](const DimFactors &factors) {
    bool summed = llvm::any_of(factors, [&](int64_t factor) {
      return rule.factors[factor].kind == FactorKind::Reduction;
    });
    return summed ? Side::In : Side::Out;
  };
  // Selects one contracted dimension (`in`) and one dimension of the result
  // (`out`). Of several, takes the one that tensor parallelism splits, which
  // already has a colour, or, if there is none, the largest.
  std::optional<int64_t> in, out;
  for (auto [dim, factors] : llvm::enumerate(dims)) {
    std::optional<int64_t> &best = sideOf(factors) == Side::In ? in : out;
    auto rank = [&](int64_t d) {
      return std::make_pair(plan.colours[d].has_value(),
                            plan.type.getDimSize(d));
    };
    if (!best || rank(dim) > rank(*best))
      best = dim;
  }
  if (!in || !out || (!plan.colours[*in] && !plan.colours[*out]))
    return;
  for (auto [dim, side] :
       {std::pair(*in, Side::In), std::pair(*out, Side::Out)}) {
    if (!plan.colours[dim] &&
        isSplittable(plan.type.getDimSize(dim), scheme.outer.features))
      plan.colours[dim] = Colour::Hidden;
    if (plan.colours[dim])
      plan.product[dim] = ProductDim{*plan.colours[dim], side};
  }
}

/// The axes `scheme.gathered` split a parameter only while it is stored; the
/// parameter is gathered over them before products. Returns the dimension that
/// they split. The contracted dimension is preferred. If its tiles do not
/// divide evenly among these axes, but those of the result's dimension do, the
/// result's dimension is taken: splitting its tiles further then gives the same
/// stored tiles as splitting the whole dimension over all axes at once.
static std::optional<int64_t> gatheredDim(const ParameterPlan &plan,
                                          const TensorScheme &scheme,
                                          dist::MeshAttr mesh) {
  std::optional<int64_t> best;
  for (Side side : {Side::In, Side::Out})
    for (auto [dim, product] : llvm::enumerate(plan.product)) {
      if (!product || product->side != side)
        continue;
      int64_t size = plan.type.getDimSize(dim);
      int64_t outer = dist::axesSize(mesh, plan.stored[dim]);
      int64_t inner = dist::axesSize(mesh, scheme.gathered);
      if (outer == 1 || dist::tileSize(size, outer) ==
                            inner * dist::tileSize(size, outer * inner))
        return dim;
      if (!best)
        best = dim;
    }
  return best;
}

ParameterPlans strategy::planParameters(
    func::FuncOp func, const DimClasses &classes,
    ArrayRef<const DimClass *> chosen, const TensorScheme &scheme,
    dist::MeshAttr mesh,
    llvm::function_ref<bool(int64_t, const TensorScheme::List &)>
        isSplittable) {
  ParameterPlans plans;
  SmallVector<ParameterPlan *> ofArgument(func.getNumArguments(), nullptr);
  for (unsigned arg = 0; arg < func.getNumArguments(); ++arg) {
    DictionaryAttr attrs = func.getArgAttrDict(arg);
    if (roleOf(attrs) != Role::Parameter)
      continue;
    ParameterPlan &plan = plans[nameOf(attrs)];
    plan.type = cast<RankedTensorType>(func.getArgumentTypes()[arg]);
    plan.colours.resize(plan.type.getRank());
    plan.product.resize(plan.type.getRank());
  }
  for (unsigned arg = 0; arg < func.getNumArguments(); ++arg)
    if (auto it = plans.find(nameOf(func.getArgAttrDict(arg)));
        it != plans.end() &&
        roleOf(func.getArgAttrDict(arg)) == Role::Parameter)
      ofArgument[arg] = &it->second;
  for (const DimClass *dims : chosen)
    for (auto [arg, dim] : dims->parameterDims) {
      // If tensor parallelism could split two dimensions, it splits only the
      // first one, unless the layout splits them by different axes.
      bool taken = llvm::any_of(ofArgument[arg]->colours, [](auto &colour) {
        return colour.has_value();
      });
      if (!taken || scheme.bySide)
        ofArgument[arg]->colours[dim] = Colour::Chosen;
    }
  // The matrix products decide which dimensions are hidden. Then the dimensions
  // of other parameters that are in the same DimClass are marked hidden, too.
  llvm::SmallDenseSet<unsigned> hidden, seen;
  forEachContraction(
      func, [&](Operation *op, ShardingRule &rule, unsigned operand) {
        auto argument = cast<BlockArgument>(op->getOperand(operand));
        if (!seen.insert(argument.getArgNumber()).second)
          return;
        ParameterPlan &plan = *ofArgument[argument.getArgNumber()];
        planProduct(plan, rule, rule.operands[operand], scheme, isSplittable);
        for (auto [dim, colour] : llvm::enumerate(plan.colours))
          if (colour == Colour::Hidden)
            if (std::optional<unsigned> index = classes.indexOf(argument, dim))
              hidden.insert(*index);
      });
  // A parameter with one row per position (position embeddings) is sharded like
  // the positions, if no other axes split the positions already.
  std::optional<unsigned> positions;
  if (scheme.positions.empty())
    for (auto [argument, dim] : nn::positionSeeds(func))
      positions = classes.indexOf(argument, dim);
  for (unsigned arg = 0; arg < func.getNumArguments(); ++arg) {
    ParameterPlan *plan = ofArgument[arg];
    if (!plan)
      continue;
    for (int64_t dim = 0; dim < plan->type.getRank(); ++dim)
      if (std::optional<unsigned> index =
              classes.indexOf(func.getArgument(arg), dim);
          index && hidden.contains(*index) && !plan->isProduct())
        plan->colours[dim] = Colour::Hidden;
    plan->stored.resize(plan->type.getRank());
    for (int64_t dim = 0; dim < plan->type.getRank(); ++dim) {
      if (const auto &product = plan->product[dim]) {
        addAxes(plan->stored, dim,
                scheme.compute(product->side, product->colour));
      } else if (!plan->isProduct() && plan->colours[dim]) {
        addAxes(plan->stored, dim, scheme.features(*plan->colours[dim]));
      } else if (std::optional<unsigned> index =
                     classes.indexOf(func.getArgument(arg), dim);
                 index && index == positions && !plan->isProduct()) {
        addAxes(plan->stored, dim, scheme.outer.sequence);
      }
    }
    if (std::optional<int64_t> dim = gatheredDim(*plan, scheme, mesh))
      addAxes(plan->stored, *dim, scheme.gathered);
  }
  return plans;
}

//===----------------------------------------------------------------------===//
// Colours
//===----------------------------------------------------------------------===//

Colours::Colours(func::FuncOp func, const DimClasses &classes,
                 const ParameterPlans &plans, const TensorScheme &scheme)
    : classes(classes), scheme(scheme), kinds(classes.classes().size()) {
  auto mark = [&](Value value, int64_t dim, Kind kind) {
    if (std::optional<unsigned> index = classes.indexOf(value, dim)) {
      if (kinds[*index] != Kind::Batch && kinds[*index] != Kind::Chosen)
        kinds[*index] = kind;
    }
  };
  for (BlockArgument argument : func.getArguments()) {
    DictionaryAttr attrs = func.getArgAttrDict(argument.getArgNumber());
    int64_t rank = typeOf(argument).getRank();
    if (roleOf(attrs) == Role::Parameter) {
      auto plan = plans.find(nameOf(attrs));
      if (plan == plans.end())
        continue;
      for (auto [dim, colour] : llvm::enumerate(plan->second.colours))
        if (colour)
          mark(argument, dim,
               *colour == Colour::Chosen ? Kind::Chosen : Kind::Hidden);
    } else if (holdsSamples(roleOf(attrs)) || crossesStages(roleOf(attrs))) {
      if (std::optional<int64_t> batch = nn::batchDimOf(attrs, rank))
        mark(argument, *batch, Kind::Batch);
    }
  }
  for (auto [argument, dim] : nn::positionSeeds(func))
    if (Kind kind = kindOf(argument, dim);
        kind == Kind::None || kind == Kind::Sequence) {
      mark(argument, dim, Kind::Sequence);
      sequence = true;
    }
}

std::optional<Axes> Colours::home(Value value) const {
  int64_t rank = typeOf(value).getRank();
  bool chosen = false, hidden = false;
  for (int64_t dim = 0; dim < rank; ++dim) {
    chosen |= kindOf(value, dim) == Kind::Chosen;
    hidden |= kindOf(value, dim) == Kind::Hidden;
  }
  if (!chosen && !hidden)
    return std::nullopt;
  const TensorScheme::State &state = chosen ? scheme.inner : scheme.outer;
  Axes axes(rank);
  for (int64_t dim = 0; dim < rank; ++dim)
    switch (kindOf(value, dim)) {
    case Kind::Batch:
      addAxes(axes, dim, state.batch);
      break;
    case Kind::Sequence:
      addAxes(axes, dim, state.sequence);
      break;
    case Kind::Hidden:
      if (!chosen)
        addAxes(axes, dim, state.features);
      break;
    case Kind::Chosen:
      addAxes(axes, dim, state.features);
      break;
    case Kind::None:
      break;
    }
  return axes;
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

Axes Product::layoutOf(const TensorFactors &dims) const {
  Axes axes(dims.size());
  for (auto [dim, made] : llvm::enumerate(dims))
    if (made.size() == 1)
      axes[dim] = factors[made[0]];
  return axes;
}

TensorScheme::List Product::partialOf(unsigned index) const {
  Axes partial(1);
  for (auto [factor, info] : llvm::enumerate(rule.factors)) {
    bool kept =
        llvm::any_of(rule.results[index], [&, factor = factor](auto &made) {
          return llvm::is_contained(made, int64_t(factor));
        });
    if (!kept && info.combiner == FactorCombiner::Sum)
      addAxes(partial, 0, factors[factor]);
  }
  return {partial[0].begin(), partial[0].end()};
}

Product strategy::makeProduct(Operation *op, ShardingRule rule,
                              const TensorFactors &parameter,
                              const ParameterPlan &plan,
                              const TensorScheme &scheme,
                              const Colours &colours) {
  Product product;
  Axes axes(rule.factors.size()); // by factor; an axis splits one
  for (auto [dim, made] : llvm::enumerate(parameter))
    if (const auto &split = plan.product[dim]; split && made.size() == 1)
      addAxes(axes, made[0], scheme.compute(split->side, split->colour));
  auto batch = [&](Value value, const TensorFactors &dims) {
    for (auto [dim, made] : llvm::enumerate(dims)) {
      if (made.size() != 1 || !axes[made[0]].empty())
        continue;
      if (colours.kindOf(value, dim) == Colours::Kind::Batch)
        addAxes(axes, made[0], scheme.computeBatch);
      else if (colours.kindOf(value, dim) == Colours::Kind::Sequence)
        addAxes(axes, made[0], scheme.positions);
    }
  };
  for (auto [value, dims] : llvm::zip_equal(op->getOperands(), rule.operands))
    batch(value, dims);
  for (auto [value, dims] : llvm::zip_equal(op->getResults(), rule.results))
    batch(value, dims);
  for (auto &list : axes)
    product.factors.emplace_back(list.begin(), list.end());
  product.rule = std::move(rule);
  return product;
}

SmallVector<Operation *> strategy::leavesOf(Value gradient) {
  SmallVector<Operation *> leaves;
  SmallVector<Value> open = {gradient};
  while (!open.empty()) {
    Operation *op = open.pop_back_val().getDefiningOp();
    if (!op)
      continue; // an argument: the gradient accumulated so far
    ShardingRule rule = ShardingRule::of(op);
    ArrayRef<unsigned> group = termsOf(rule);
    if (group.empty() || isa<dist::ConstrainOp>(op)) {
      leaves.push_back(op);
      continue;
    }
    for (unsigned operand : group)
      open.push_back(op->getOperand(operand));
  }
  return leaves;
}

/// Calls `visit(plan, gradient)` for each result of the function that is the
/// gradient of a parameter in `plans`; `plan` is the plan of this parameter.
template <typename Plans, typename Visit>
static void forEachGradient(func::FuncOp func, Plans &plans, Visit visit) {
  Operation *terminator = func.getBody().front().getTerminator();
  for (unsigned index = 0; index < func.getNumResults(); ++index) {
    DictionaryAttr attrs = func.getResultAttrDict(index);
    if (roleOf(attrs) != Role::Gradient)
      continue;
    if (auto plan = plans.find(nameOf(attrs)); plan != plans.end())
      visit(plan->second, terminator->getOperand(index));
  }
}

Products strategy::findProducts(func::FuncOp func, const ParameterPlans &plans,
                                const TensorScheme &scheme,
                                const Colours &colours) {
  Products products;
  forEachContraction(func, [&](Operation *op, ShardingRule &rule,
                               unsigned operand) {
    auto plan = plans.find(parameterName(op->getOperand(operand)));
    if (plan == plans.end() || !plan->second.isProduct())
      return;
    TensorFactors dims = rule.operands[operand];
    products[op] =
        makeProduct(op, std::move(rule), dims, plan->second, scheme, colours);
  });
  forEachGradient(func, plans, [&](const ParameterPlan &plan, Value gradient) {
    if (!plan.isProduct())
      return;
    for (Operation *op : leavesOf(gradient)) {
      if (op->getNumResults() != 1 || products.contains(op))
        continue;
      ShardingRule rule = ShardingRule::of(op);
      TensorFactors dims = rule.results[0];
      if (dims.size() != plan.product.size() || op->getNumOperands() < 2)
        continue;
      products[op] =
          makeProduct(op, std::move(rule), dims, plan, scheme, colours);
      products[op].makesGradient = true;
    }
  });
  return products;
}

void strategy::findPartialGradients(func::FuncOp func, ParameterPlans &plans,
                                    const TensorScheme &scheme,
                                    const Colours &colours,
                                    const Products &products) {
  auto partialOf = [&](Operation *op) {
    auto found = products.find(op);
    if (found != products.end())
      return found->second.partialOf(0);
    Axes partial(1);
    ShardingRule rule = ShardingRule::of(op);
    for (auto [index, factor] : llvm::enumerate(rule.factors)) {
      if (factor.combiner != FactorCombiner::Sum)
        continue;
      for (auto [value, dims] :
           llvm::zip_equal(op->getOperands(), rule.operands)) {
        std::optional<Axes> home = colours.home(value);
        for (auto [dim, made] : llvm::enumerate(dims))
          if (llvm::is_contained(made, int64_t(index))) {
            if (home)
              addAxes(partial, 0, (*home)[dim]);
            else if (colours.kindOf(value, dim) == Colours::Kind::Batch)
              addAxes(partial, 0, scheme.inner.batch);
          }
      }
    }
    return TensorScheme::List(partial[0].begin(), partial[0].end());
  };
  forEachGradient(func, plans, [&](ParameterPlan &plan, Value gradient) {
    std::optional<TensorScheme::List> common;
    for (Operation *op : leavesOf(gradient)) {
      auto partial = partialOf(op);
      if (!common)
        common = partial;
      else
        llvm::erase_if(*common, [&](dist::AxisRefAttr axis) {
          return !llvm::is_contained(partial, axis);
        });
    }
    if (!common)
      return;
    // Over axes that split the parameter, the samples or the positions, other
    // code makes the gradient partial. So they are not counted here.
    llvm::erase_if(*common, [&](dist::AxisRefAttr axis) {
      return llvm::is_contained(scheme.samples, axis) ||
             llvm::is_contained(scheme.positions, axis) ||
             llvm::any_of(plan.stored, [&](auto &list) {
               return llvm::is_contained(list, axis);
             });
    });
    plan.partial = *common;
  });
}
