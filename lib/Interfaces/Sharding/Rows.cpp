// Sharding rules of softmax, norms and cross-entropy, which all reduce along
// the last dimension (the rows). If this dimension is split, each rank reduces
// its tile of a row, and an all-reduce combines the results of the ranks
// (Joint.h).

#include "Joint.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::sharding;

namespace {

ShardingRule softmax(nn::SoftmaxOp op) {
  ShardingRule rule = elementwise(op);
  rule.factors.back().kind = FactorKind::Reduction;
  return rule;
}

/// The sharding rule of a norm and its gradient. A norm has operands (input,
/// gain...) and results (output, statistics...). A gradient has operands
/// (cotangent, input, gain, statistics...).
template <typename Op> ShardingRule norm(Op op) {
  ShardingRule rule;
  TensorFactors dims = addFactors(rule, shapeOf(op.getInput()));
  rule.factors.back().kind = FactorKind::Reduction;
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
  rule.factors.back().kind = FactorKind::Reduction;
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

/// Returns the factor of the last dimension of an operand, the row dimension.
int64_t rowFactor(LocalPlan &plan, unsigned operand) {
  return plan.rule().operands[operand].back()[0];
}

/// Emits the per-rank code of an operation that `Formula` defines and that
/// reduces along its row dimension, the last dimension of operand number
/// `Operand`. If this dimension is split, reductions also run over the ranks.
template <typename Op, Decomposed (*Formula)(Op, TensorExpr &),
          unsigned Operand, dist::Purpose Purpose>
LogicalResult planRows(Op, LocalPlan &plan) {
  return planJoint<Op, Formula>(plan, rowFactor(plan, Operand), Purpose);
}

} // namespace

void cleave::sharding::attachRows(MLIRContext *context) {
  constexpr dist::Purpose activation = dist::Purpose::Activation,
                          loss = dist::Purpose::Loss;
  attach<nn::SoftmaxOp, softmax,
         planRows<nn::SoftmaxOp, formula::softmax, 0, activation>>(context);
  attach<nn::LayerNormOp, norm<nn::LayerNormOp>,
         planRows<nn::LayerNormOp, formula::layerNorm, 0, activation>>(context);
  attach<nn::LayerNormGradOp, normGrad<nn::LayerNormGradOp>,
         planRows<nn::LayerNormGradOp, formula::layerNormGrad, 0, activation>>(
      context);
  attach<nn::RmsNormOp, norm<nn::RmsNormOp>,
         planRows<nn::RmsNormOp, formula::rmsNorm, 0, activation>>(context);
  attach<nn::RmsNormGradOp, normGrad<nn::RmsNormGradOp>,
         planRows<nn::RmsNormGradOp, formula::rmsNormGrad, 0, activation>>(
      context);
  // If the classes (the last dimension of the logits) are split, cross-entropy
  // needs three reductions over ranks, each of a tensor [b, s]: the maximum,
  // the sum of exponentials, and the label's logit. In the gradient, each rank
  // computes the columns of its own classes.
  attach<nn::CrossEntropyOp, crossEntropy,
         planRows<nn::CrossEntropyOp, formula::crossEntropy, 0, loss>>(context);
  attach<nn::CrossEntropyGradOp, crossEntropyGrad,
         planRows<nn::CrossEntropyGradOp, formula::crossEntropyGrad, 1, loss>>(
      context);
}
