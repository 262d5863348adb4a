// Sharding rules of grouped products (grouped GEMM, in which each row is
// multiplied with the matrix that its id selects), and of
// nn.position_in_expert, which numbers the token-expert pairs of each expert.
// The rows are independent. If the matrices are split along their first
// dimension (experts), the rule is like that of a lookup in a split embedding
// table: each rank multiplies the rows whose matrix is in its tile, and returns
// zeros for all other rows, so results are partial sums.

#include "Lookup.h"
#include "cleave/Interfaces/RowShare.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::sharding;

namespace {

ShardingRule groupedDot(nn::GroupedDotOp op) {
  ShardingRule rule;
  TensorFactors rows = addFactors(rule, shapeOf(op.getIds()));
  ArrayRef<int64_t> sizes = shapeOf(op.getMatrices());
  bool transposed = op.getTransposed();
  DimFactors e = {
      rule.addFactor(sizes[0], FactorKind::Reduction, FactorCombiner::Sum)};
  rule.factors.back().indexed = true; // like the table of nn.gather
  DimFactors k = {rule.addFactor(sizes[transposed ? 2 : 1],
                                 FactorKind::Reduction, FactorCombiner::Sum)};
  DimFactors n = {rule.addFactor(sizes[transposed ? 1 : 2])};
  TensorFactors input(rows), result(rows);
  input.push_back(k);
  result.push_back(n);
  rule.operands = {input,
                   transposed ? TensorFactors{e, n, k} : TensorFactors{e, k, n},
                   rows};
  rule.results = {result};
  rule.linear = {{0}, {1}};
  return rule;
}

ShardingRule groupedOuter(nn::GroupedOuterOp op) {
  ShardingRule rule;
  TensorFactors rows = addFactors(rule, shapeOf(op.getIds()),
                                  FactorKind::Reduction, FactorCombiner::Sum);
  TensorFactors result = addFactors(rule, shapeOf(op.getResult()));
  TensorFactors left(rows), right(rows);
  left.push_back(result[1]);
  right.push_back(result[2]);
  rule.operands = {left, right, rows};
  rule.results = {result};
  rule.linear = {{0}, {1}};
  return rule;
}

/// The result numbers the token-expert pairs of each expert, so it depends on
/// all pairs of a sample. Therefore every rank gathers the expert ids of whole
/// samples (a few bytes per pair) and `loads`, the number of pairs of each
/// expert in each of the earlier samples.
ShardingRule positionInExpert(nn::PositionInExpertOp op) {
  ShardingRule rule;
  TensorFactors ids =
      addFactors(rule, shapeOf(op.getIds()), FactorKind::NeedReplication);
  rule.factors[ids[0][0]].kind = FactorKind::PassThrough;
  rule.factors[ids[1][0]].unordered = true;
  bool perSample = shapeOf(op.getPositions()).size() == 2;
  rule.operands = {ids, perSample ? TensorFactors{ids[0], ids[1]}
                                  : TensorFactors{ids[1]}};
  if (op.getLoads()) {
    rule.operands.push_back(
        addFactors(rule, shapeOf(op.getLoads()), FactorKind::NeedReplication));
    rule.operands.push_back({ids[0]});
  }
  rule.results = {ids};
  return rule;
}

/// Sets the ids of padded rows to -1, which selects no matrix, so that they
/// cause no work and no communication.
Value withoutPadding(LocalPlan &plan, Value ids) {
  const TensorFactors &rows = plan.rule().operands[2];
  auto type = cast<RankedTensorType>(ids.getType());
  auto none = DenseElementsAttr::get(
      type, plan.builder().getIntegerAttr(type.getElementType(), -1));
  for (const DimFactors &dim : rows)
    ids = plan.filled(ids, rows, dim[0], none);
  return ids;
}

/// Records in an attribute that a rank multiplies only those rows whose matrix
/// is in its own tile: on average, one in `ways` rows.
void noteShare(LocalPlan &plan, Operation *local, int64_t factor) {
  if (plan.isSplit(factor))
    local->setAttr(kRowShareAttrName,
                   plan.builder().getI64IntegerAttr(plan.ways(factor)));
}

LogicalResult planGroupedDot(nn::GroupedDotOp op, LocalPlan &plan) {
  const TensorFactors &matrices = plan.rule().operands[1];
  int64_t experts = matrices[0][0],
          contracted = matrices[op.getTransposed() ? 2 : 1][0];
  for (unsigned operand : {0, 1})
    plan.setOperand(operand, plan.masked(plan.operand(operand),
                                         plan.rule().operands[operand],
                                         contracted, FactorCombiner::Sum));
  plan.setOperand(2,
                  inTile(plan, withoutPadding(plan, plan.operand(2)), experts));
  Operation *local = plan.cloneLocal();
  noteShare(plan, local, experts);
  plan.setResults(local->getResults());
  return success();
}

LogicalResult planGroupedOuter(nn::GroupedOuterOp op, LocalPlan &plan) {
  const TensorFactors &rows = plan.rule().operands[2];
  int64_t experts = plan.rule().results[0][0][0];
  for (const DimFactors &dim : rows)
    for (unsigned operand : {0, 1})
      plan.setOperand(operand, plan.masked(plan.operand(operand),
                                           plan.rule().operands[operand],
                                           dim[0], FactorCombiner::Sum));
  plan.setOperand(2, shifted(plan, plan.operand(2), experts));
  Operation *local = plan.cloneLocal();
  noteShare(plan, local, experts);
  plan.setResults(local->getResults());
  return success();
}

} // namespace

void cleave::sharding::attachExperts(MLIRContext *context) {
  attach<nn::GroupedDotOp, groupedDot, planGroupedDot>(context);
  attach<nn::GroupedOuterOp, groupedOuter, planGroupedOuter>(context);
  attach<nn::PositionInExpertOp, positionInExpert>(context);
}
