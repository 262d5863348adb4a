// Sharding rules of attention and rotary positions. Samples, KV heads and the
// query heads of a group are independent. So are queries, if masks do not
// depend on their index. Keys and features cannot be split.

#include "Model.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::sharding;

namespace {

ShardingRule rotary(nn::RotaryOp op) {
  ShardingRule rule;
  TensorFactors input = addFactors(rule, shapeOf(op.getInput()));
  rule.factors.back().kind = FactorKind::NeedReplication;
  TensorFactors angles;
  if (shapeOf(op.getCos()).size() == 3)
    angles.push_back(input[0]);
  angles.push_back(input[1]);
  angles.push_back({rule.addFactor(shapeOf(op.getCos()).back(),
                                   FactorKind::NeedReplication)});
  rule.operands = {input, angles, angles};
  rule.results = {input};
  rule.linear = {{0}};
  return rule;
}

/// The factors of the dimensions of each operand and result of an attention.
struct AttentionFactors {
  TensorFactors query, key, value, output, lse;
  TensorFactors qPositions, kPositions, qSegments, kSegments, keyMask, bias;
  TensorFactors dropoutKeys, qIndex, kIndex;

  template <typename Op> AttentionFactors(ShardingRule &rule, Op op) {
    ArrayRef<int64_t> q = shapeOf(op.getQuery()), v = shapeOf(op.getValue());
    // Without explicit positions, causal and window masks compare indices in
    // the whole tensor. On a tile these indices would be different, so queries
    // cannot be split.
    bool anyQuery = op.getQPositions() || (!op.getCausal() && !op.getWindow());
    // The forward results have the dimensions of the queries and of the query
    // heads of a group. The gradients of keys and values lack these dimensions:
    // they are sums over them.
    DimFactors b = {rule.addFactor(q[0])};
    DimFactors s = {rule.addFactor(
        q[1], anyQuery ? FactorKind::PassThrough : FactorKind::NeedReplication,
        FactorCombiner::Sum)};
    DimFactors n = {rule.addFactor(q[2])};
    DimFactors g = {
        rule.addFactor(q[3], FactorKind::PassThrough, FactorCombiner::Sum)};
    DimFactors d = {rule.addFactor(q[4], FactorKind::NeedReplication)};
    DimFactors t = {rule.addFactor(v[1], FactorKind::NeedReplication)};
    DimFactors e = {rule.addFactor(v[3], FactorKind::NeedReplication)};
    query = {b, s, n, g, d};
    key = {b, t, n, d};
    value = {b, t, n, e};
    output = {b, s, n, g, e};
    lse = {b, n, g, s};
    auto positions = [&](Value value, DimFactors along) -> TensorFactors {
      if (!value)
        return {};
      return shapeOf(value).size() == 1 ? TensorFactors{along}
                                        : TensorFactors{b, along};
    };
    qPositions = positions(op.getQPositions(), s);
    kPositions = positions(op.getKPositions(), t);
    qSegments = positions(op.getQSegments(), s);
    kSegments = positions(op.getKSegments(), t);
    keyMask = {b, t};
    dropoutKeys = {b, n, g};
    qIndex = {s};
    kIndex = {t};
    if (op.getBias()) {
      bias = {b, n, g, s, t};
      for (auto [dim, size] : llvm::enumerate(shapeOf(op.getBias())))
        if (size == 1 && dim < 3)
          bias[dim].clear();
    }
  }

  template <typename Op> void addOptional(ShardingRule &rule, Op op) {
    if (op.getQPositions())
      rule.operands.push_back(qPositions);
    if (op.getKPositions())
      rule.operands.push_back(kPositions);
    if (op.getQSegments())
      rule.operands.push_back(qSegments);
    if (op.getKSegments())
      rule.operands.push_back(kSegments);
    if (op.getKeyMask())
      rule.operands.push_back(keyMask);
    if (op.getBias())
      rule.operands.push_back(bias);
    if (op.getDropoutKeys())
      rule.operands.append({dropoutKeys, qIndex, kIndex});
  }
};

ShardingRule attention(nn::AttentionOp op) {
  ShardingRule rule;
  AttentionFactors f(rule, op);
  rule.operands = {f.query, f.key, f.value};
  f.addOptional(rule, op);
  rule.results = {f.output, f.lse};
  return rule;
}

ShardingRule attentionGrad(nn::AttentionGradOp op) {
  ShardingRule rule;
  AttentionFactors f(rule, op);
  rule.operands = {f.output, f.query, f.key, f.value, f.output, f.lse};
  f.addOptional(rule, op);
  rule.results = {f.query, f.key, f.value};
  rule.linear = {{0}};
  return rule;
}

} // namespace

void cleave::sharding::attachAttention(MLIRContext *context) {
  attach<nn::RotaryOp, rotary>(context);
  attach<nn::AttentionOp, attention>(context);
  attach<nn::AttentionGradOp, attentionGrad>(context);
}
