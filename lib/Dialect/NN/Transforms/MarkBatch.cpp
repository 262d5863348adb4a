// nn-mark-batch: follows the samples from the inputs to the outputs.

#include "cleave/Dialect/NN/IR/Batch.h"
#include "cleave/Dialect/NN/Transforms/Passes.h"
#include "cleave/Interfaces/Interfaces.h"

namespace cleave {
#define GEN_PASS_DEF_MARKBATCHPASS
#include "cleave/Dialect/NN/Transforms/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;

namespace {

RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

/// Marks dimensions whose major part is the batch: of size `batch`, or a
/// product that begins with it ([batch * sequence]).
class BatchFlow {
public:
  BatchFlow(func::FuncOp func, int64_t batch) : func(func), batch(batch) {}

  void seed(BlockArgument argument, int64_t dim) {
    batched.insert(argument);
    set(argument, dim);
  }

  void run() {
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

  /// The one dimension that is exactly the batch.
  std::optional<int64_t> dimOf(Value value) const {
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

  /// Whether some value computed from `argument` is known to hold samples.
  bool meetsBatch(BlockArgument argument) const {
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

  /// Computed from inputs that hold samples.
  bool isBatched(Value value) const { return batched.count(value); }
  /// One sample's part of it depends on other samples.
  bool isMixed(Value value) const { return mixed.count(value); }

private:
  /// Computed from inputs of the microbatch, not from parameters alone.
  bool fromInputs(Value value) {
    if (Operation *def = value.getDefiningOp())
      return computed.count(def);
    auto role = func.getArgAttrOfType<StringAttr>(
        cast<BlockArgument>(value).getArgNumber(), nn::kRoleAttr);
    return role && role != "parameter" && role != "buffer" &&
           role != "constant";
  }

  void set(Value value, int64_t dim) {
    int64_t size = typeOf(value).getDimSize(dim);
    if (!fromInputs(value) || size == 0 || size % batch != 0)
      return;
    SmallVector<bool> &dims = marks[value];
    dims.resize(typeOf(value).getRank(), false);
    changed |= !dims[dim];
    dims[dim] = true;
  }

  bool isMarked(Value value, int64_t dim) const {
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

  void visit(Operation *op) {
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
    // A dimension of size 1 is no factor of a reshape.
    if (auto reshape = dyn_cast<nn::ReshapeOp>(op); reshape && batch == 1) {
      Value from = reshape.getInput(), to = reshape.getResult();
      for (auto [source, target] : {std::pair(from, to), std::pair(to, from)})
        if (typeOf(source).getRank() && typeOf(target).getRank() &&
            isMarked(source, 0) && typeOf(source).getDimSize(0) == 1 &&
            typeOf(target).getDimSize(0) == 1)
          set(target, 0);
    }
  }

  void findMixing(Operation *op) {
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

  func::FuncOp func;
  int64_t batch;
  bool changed = false;
  DenseSet<Operation *> computed;
  DenseMap<Value, SmallVector<bool>> marks;
  DenseSet<Value> batched, mixed;
};

struct MarkBatchPass : cleave::impl::MarkBatchPassBase<MarkBatchPass> {
  using Base::Base;

  void runOnOperation() override {
    func::FuncOp func = getOperation();
    if (func.isDeclaration() || !findSeeds(func))
      return;
    int64_t batch = 0;
    for (auto [argument, dim] : seeds)
      batch = typeOf(argument).getDimSize(dim);
    if (batch < 1)
      return;
    BatchFlow flow(func, batch);
    for (auto [argument, dim] : seeds)
      if (typeOf(argument).getDimSize(dim) == batch)
        flow.seed(argument, dim);
    flow.run();
    bool found = false;
    for (BlockArgument argument : func.getArguments()) {
      if (!isInput(argument) || said(argument))
        continue;
      std::optional<int64_t> dim = flow.dimOf(argument);
      // One that meets the others in sums alone.
      if (!dim && !isDeclared && typeOf(argument).getRank() &&
          typeOf(argument).getDimSize(0) == batch && !flow.meetsBatch(argument))
        dim = 0;
      if (dim)
        seeds.push_back({argument, *dim}), found = true;
    }
    if (found) { // for what depends on them
      flow = BatchFlow(func, batch);
      for (auto [argument, dim] : seeds)
        if (typeOf(argument).getDimSize(dim) == batch)
          flow.seed(argument, dim);
      flow.run();
    }
    Builder builder(&getContext());
    for (auto [argument, dim] : seeds)
      func.setArgAttr(argument.getArgNumber(), nn::kBatchDimAttr,
                      builder.getI64IntegerAttr(dim));
    markResults(func, flow, batch);
  }

private:
  bool isInput(BlockArgument argument) {
    auto role = getOperation().getArgAttrOfType<StringAttr>(
        argument.getArgNumber(), nn::kRoleAttr);
    return role && isa<RankedTensorType>(argument.getType()) &&
           (role == "tokens" || role == "labels" || role == "input");
  }

  IntegerAttr said(BlockArgument argument) {
    return getOperation().getArgAttrOfType<IntegerAttr>(argument.getArgNumber(),
                                                        nn::kBatchDimAttr);
  }

  /// The inputs that are known to hold samples: those that say so, else the
  /// tokens, else the first of all.
  bool findSeeds(func::FuncOp func) {
    seeds.clear();
    isDeclared = false;
    std::optional<BlockArgument> first, tokens;
    for (BlockArgument argument : func.getArguments()) {
      if (!isInput(argument) || typeOf(argument).getRank() == 0)
        continue;
      if (!first)
        first = argument;
      if (func.getArgAttrOfType<StringAttr>(argument.getArgNumber(),
                                            nn::kRoleAttr) == "tokens")
        tokens = argument;
      if (IntegerAttr dim = said(argument)) {
        isDeclared = true;
        if (dim.getInt() >= 0 && dim.getInt() < typeOf(argument).getRank())
          seeds.push_back({argument, dim.getInt()});
      }
    }
    if (!isDeclared && first)
      seeds.push_back({tokens ? *tokens : *first, 0});
    return !seeds.empty();
  }

  void markResults(func::FuncOp func, const BatchFlow &flow, int64_t batch) {
    Builder builder(&getContext());
    Operation *end = func.getBody().front().getTerminator();
    for (auto [index, value] : llvm::enumerate(end->getOperands())) {
      auto type = dyn_cast<RankedTensorType>(value.getType());
      if (!type)
        continue;
      auto known =
          func.getResultAttrOfType<IntegerAttr>(index, nn::kBatchDimAttr);
      std::optional<int64_t> dim = flow.dimOf(value);
      if (known)
        dim = known.getInt();
      else if (!dim && batch == 1 && flow.isBatched(value) && type.getRank() &&
               type.getDimSize(0) == 1)
        dim = 0;
      if (dim)
        func.setResultAttr(index, nn::kBatchDimAttr,
                           builder.getI64IntegerAttr(*dim));
      if (flow.isBatched(value) && (!dim || flow.isMixed(value)))
        func.setResultAttr(index, nn::kWholeCallAttr, builder.getUnitAttr());
    }
  }

  SmallVector<std::pair<BlockArgument, int64_t>> seeds;
  /// Some input says which dimension is the batch, so that others would too.
  bool isDeclared = false;
};

} // namespace
