// Rules of softmax, norms and cross-entropy: rows along the last dimension.

#include "Model.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::sharding;

namespace {

ShardingRule softmax(nn::SoftmaxOp op) {
  ShardingRule rule = elementwise(op);
  rule.factors.back().kind = FactorKind::NeedReplication;
  return rule;
}

/// Statistics and gains by position: operands are (input, gain...), results
/// (output, statistics...); of the gradients (cotangent, input, gain,
/// statistics...).
template <typename Op> ShardingRule norm(Op op) {
  ShardingRule rule;
  TensorFactors dims = addFactors(rule, shapeOf(op.getInput()));
  rule.factors.back().kind = FactorKind::NeedReplication;
  TensorFactors last = {dims.back()}, statistic(dims.begin(), dims.end() - 1);
  rule.operands.assign(op->getNumOperands(), last);
  rule.operands[0] = dims;
  rule.results.assign(op->getNumResults(), statistic);
  rule.results[0] = dims;
  return rule;
}

template <typename Op> ShardingRule normGrad(Op op) {
  ShardingRule rule;
  TensorFactors dims = addFactors(rule, shapeOf(op.getInput()));
  rule.factors.back().kind = FactorKind::NeedReplication;
  TensorFactors last = {dims.back()}, statistic(dims.begin(), dims.end() - 1);
  rule.operands.assign(op->getNumOperands(), statistic);
  rule.operands[0] = rule.operands[1] = dims;
  rule.operands[2] = last;
  rule.results = {dims};
  rule.linear = {{0}};
  return rule;
}

//===----------------------------------------------------------------------===//
// Cross-entropy
//===----------------------------------------------------------------------===//

ShardingRule crossEntropy(nn::CrossEntropyOp op) {
  ShardingRule rule;
  TensorFactors logits = addFactors(rule, shapeOf(op.getLogits()));
  // planLocal combines over the classes itself.
  rule.factors.back().kind = FactorKind::Reduction;
  TensorFactors position(logits.begin(), logits.end() - 1);
  rule.operands = {logits, position};
  rule.results = {position, position};
  return rule;
}

ShardingRule crossEntropyGrad(nn::CrossEntropyGradOp op) {
  ShardingRule rule;
  TensorFactors logits = addFactors(rule, shapeOf(op.getLogits()));
  TensorFactors position(logits.begin(), logits.end() - 1);
  rule.operands = {position, logits, position, position};
  rule.results = {logits};
  rule.linear = {{0}};
  return rule;
}

/// What forward and gradient share when the classes are split: which entries
/// are the labels', and which positions count.
struct SplitClasses {
  LocalPlan &plan;
  OpBuilder &builder;
  Location loc;
  int64_t factor;
  RankedTensorType logits, position;
  SmallVector<int64_t> dims;

  SplitClasses(LocalPlan &plan, Value logitsValue, int64_t factor)
      : plan(plan), builder(plan.builder()), loc(plan.loc()), factor(factor),
        logits(cast<RankedTensorType>(logitsValue.getType())),
        position(logits.clone(logits.getShape().drop_back())) {
    for (int64_t dim = 0; dim + 1 < logits.getRank(); ++dim)
      dims.push_back(dim);
  }

  /// [b, s] -> [b, s, v].
  Value spread(Value value) {
    auto type = cast<RankedTensorType>(value.getType());
    return nn::BroadcastOp::create(builder, loc, logits.clone(type.getElementType()), value, dims);
  }

  /// i1 [b, s, v]: whether the entry is the label's.
  Value isLabel(Value labels) {
    auto element = cast<RankedTensorType>(labels.getType()).getElementType();
    Value classes = plan.globalIndex(logits.clone(element), logits.getRank() - 1, factor);
    return arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, classes, spread(labels));
  }

  /// i1 [b, s]: whether the label is neither ignored nor outside the classes.
  Value counted(Value labels, int64_t ignoreIndex) {
    auto type = cast<RankedTensorType>(labels.getType());
    auto compare = [&](arith::CmpIPredicate predicate, int64_t value) -> Value {
      Value bound = arith::ConstantOp::create(
          builder, loc,
          DenseElementsAttr::get(
              type, cast<Attribute>(builder.getIntegerAttr(type.getElementType(), value))));
      return arith::CmpIOp::create(builder, loc, predicate, labels, bound);
    };
    Value inside = arith::AndIOp::create(
        builder, loc, compare(arith::CmpIPredicate::sge, 0),
        compare(arith::CmpIPredicate::slt, plan.rule().factors[factor].size));
    return arith::AndIOp::create(builder, loc, inside,
                                 compare(arith::CmpIPredicate::ne, ignoreIndex));
  }

  Value reduce(nn::Combiner combiner, Value value) {
    return nn::ReduceOp::create(builder, loc, position, combiner, value,
                                builder.getDenseI64ArrayAttr({logits.getRank() - 1}));
  }
};

/// Three joint reductions of [b, s]: the maximum, the sum of exponentials, the
/// label's logit. The logits are never gathered.
LogicalResult planCrossEntropy(nn::CrossEntropyOp op, LocalPlan &plan) {
  int64_t factor = plan.rule().operands[0].back()[0];
  if (!plan.isSplit(factor)) {
    plan.setResults(plan.cloneLocal()->getResults());
    return success();
  }
  OpBuilder &builder = plan.builder();
  Location loc = plan.loc();
  Value labels = plan.operand(1);
  Value logits = plan.masked(plan.operand(0), plan.rule().operands[0], factor,
                             FactorCombiner::Max);
  SplitClasses classes(plan, logits, factor);

  Value max = plan.allReduce(classes.reduce(nn::Combiner::Max, logits), dist::ReduceKind::Max,
                             factor, dist::Purpose::Loss);
  Value exps = math::ExpOp::create(
      builder, loc, arith::SubFOp::create(builder, loc, logits, classes.spread(max)).getResult());
  Value sum = plan.allReduce(classes.reduce(nn::Combiner::Sum, exps), dist::ReduceKind::Sum,
                             factor, dist::Purpose::Loss);
  Value zeros = plan.constant(classes.logits, 0);
  Value picked =
      arith::SelectOp::create(builder, loc, classes.isLabel(labels), logits, zeros);
  Value target = plan.allReduce(classes.reduce(nn::Combiner::Sum, picked), dist::ReduceKind::Sum,
                                factor, dist::Purpose::Loss);
  Value lse = arith::AddFOp::create(builder, loc, max, math::LogOp::create(builder, loc, sum));
  Value loss = arith::SelectOp::create(
      builder, loc, classes.counted(labels, op.getIgnoreIndex()),
      arith::SubFOp::create(builder, loc, lse, target).getResult(),
      plan.constant(classes.position, 0));
  plan.setResults({loss, lse});
  return success();
}

/// Each rank has the columns of its classes; the label's column lies on one.
LogicalResult planCrossEntropyGrad(nn::CrossEntropyGradOp op, LocalPlan &plan) {
  int64_t factor = plan.rule().operands[1].back()[0];
  if (!plan.isSplit(factor)) {
    plan.setResults(plan.cloneLocal()->getResults());
    return success();
  }
  OpBuilder &builder = plan.builder();
  Location loc = plan.loc();
  Value cotangent = plan.operand(0), logits = plan.operand(1), labels = plan.operand(2),
        lse = plan.operand(3);
  SplitClasses classes(plan, logits, factor);
  Value scale =
      arith::SelectOp::create(builder, loc, classes.counted(labels, op.getIgnoreIndex()),
                              cotangent, plan.constant(classes.position, 0));
  Value shifted = arith::SubFOp::create(builder, loc, logits, classes.spread(lse));
  Value probabilities = math::ExpOp::create(builder, loc, shifted);
  Value onehot = arith::SelectOp::create(builder, loc, classes.isLabel(labels),
                                         plan.constant(classes.logits, 1),
                                         plan.constant(classes.logits, 0));
  Value difference = arith::SubFOp::create(builder, loc, probabilities, onehot);
  plan.setResults(
      arith::MulFOp::create(builder, loc, classes.spread(scale), difference)->getResults());
  return success();
}

} // namespace

void cleave::sharding::attachRows(MLIRContext *context) {
  attach<nn::SoftmaxOp, softmax>(context);
  attach<nn::LayerNormOp, norm<nn::LayerNormOp>>(context);
  attach<nn::LayerNormGradOp, normGrad<nn::LayerNormGradOp>>(context);
  attach<nn::RmsNormOp, norm<nn::RmsNormOp>>(context);
  attach<nn::RmsNormGradOp, normGrad<nn::RmsNormGradOp>>(context);
  attach<nn::CrossEntropyOp, crossEntropy, planCrossEntropy>(context);
  attach<nn::CrossEntropyGradOp, crossEntropyGrad, planCrossEntropyGrad>(context);
}
