// Sharding rules of products and reductions.

#include "Joint.h"

#include <map>

using namespace mlir;
using namespace cleave;
using namespace cleave::sharding;

namespace {

/// One factor per label; labels that the result does not have are summed over.
ShardingRule einsum(nn::EinsumOp op) {
  ShardingRule rule;
  nn::EinsumOp::Labels labels = op.getLabels();
  std::map<char, int64_t> factorOf;
  auto factorsOf = [&](StringRef letters, ArrayRef<int64_t> shape) {
    TensorFactors dims;
    for (auto [letter, size] : llvm::zip_equal(letters, shape)) {
      auto [at, isNew] = factorOf.try_emplace(letter, 0);
      if (isNew)
        at->second = labels.result.find(letter) != std::string::npos
                         ? rule.addFactor(size)
                         : rule.addFactor(size, FactorKind::Reduction,
                                          FactorCombiner::Sum);
      dims.push_back({at->second});
    }
    return dims;
  };
  rule.operands.push_back(factorsOf(labels.lhs, shapeOf(op.getLhs())));
  rule.operands.push_back(factorsOf(labels.rhs, shapeOf(op.getRhs())));
  rule.results.push_back(factorsOf(labels.result, shapeOf(op.getResult())));
  rule.linear = {{0}, {1}};
  return rule;
}

ShardingRule reduce(nn::ReduceOp op) {
  ShardingRule rule;
  FactorCombiner combiner = factorCombiner(op.getCombiner());
  TensorFactors input, result;
  for (auto [dim, size] : llvm::enumerate(shapeOf(op.getInput()))) {
    bool reduced = llvm::is_contained(op.getDims(), int64_t(dim));
    input.push_back({reduced
                         ? rule.addFactor(size, FactorKind::Reduction, combiner)
                         : rule.addFactor(size)});
    if (!reduced)
      result.push_back(input.back());
  }
  rule.operands = {input};
  rule.results = {result};
  if (combiner == FactorCombiner::Sum)
    rule.linear = {{0}};
  return rule;
}

ShardingRule argmax(nn::ArgMaxOp op) {
  ShardingRule rule;
  TensorFactors input, result;
  for (auto [dim, size] : llvm::enumerate(shapeOf(op.getInput()))) {
    bool reduced = int64_t(dim) == int64_t(op.getDim());
    input.push_back({rule.addFactor(size, reduced ? FactorKind::Reduction
                                                  : FactorKind::PassThrough)});
    if (!reduced)
      result.push_back(input.back());
  }
  rule.operands = {input};
  rule.results = {result};
  return rule;
}

/// Emits the per-rank code of an argmax along a split dimension: the ranks
/// compute the maximum over all tiles, then the smallest index at which it
/// occurs.
LogicalResult planArgmax(nn::ArgMaxOp op, LocalPlan &plan) {
  return planJoint<nn::ArgMaxOp, formula::argMax>(
      plan, plan.rule().operands[0][op.getDim()][0], dist::Purpose::Activation);
}

} // namespace

void cleave::sharding::attachContraction(MLIRContext *context) {
  attach<nn::EinsumOp, einsum>(context);
  attach<nn::ReduceOp, reduce>(context);
  attach<nn::ArgMaxOp, argmax, planArgmax>(context);
}
