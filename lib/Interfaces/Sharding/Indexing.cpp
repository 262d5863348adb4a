// Sharding rules of gather and scatter. Along the indexed dimension, the table
// is split like any other dimension: each rank subtracts its tile's offset from
// the indices, and indices outside its tile read zeros or are dropped. So a
// gather computes partial sums, and a scatter its own tile.

#include "Lookup.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::sharding;

Value cleave::sharding::shifted(LocalPlan &plan, Value indices,
                                int64_t factor) {
  if (!plan.isSplit(factor))
    return indices;
  auto type = cast<RankedTensorType>(indices.getType());
  Value offset = plan.offset(factor);
  auto scalar = RankedTensorType::get({}, type.getElementType());
  if (scalar != offset.getType())
    offset =
        arith::TruncIOp::create(plan.builder(), plan.loc(), scalar, offset);
  return arith::SubIOp::create(plan.builder(), plan.loc(), indices,
                               plan.splat(offset, type));
}

Value cleave::sharding::inTile(LocalPlan &plan, Value indices, int64_t factor) {
  Value local = shifted(plan, indices, factor);
  if (!plan.isPadded(factor))
    return local;
  // A valid index never points into the padding of a tile, but an index out of
  // range may. Such an index is replaced by -1, which is outside of all tiles.
  auto type = cast<RankedTensorType>(indices.getType());
  Value inside = arith::CmpIOp::create(
      plan.builder(), plan.loc(), arith::CmpIPredicate::slt, indices,
      plan.constant(type, plan.rule().factors[factor].size));
  return arith::SelectOp::create(plan.builder(), plan.loc(), inside, local,
                                 plan.constant(type, -1));
}

namespace {

ShardingRule gather(nn::GatherOp op) {
  ShardingRule rule;
  TensorFactors table, indices, result;
  int64_t along = op.getDim();
  indices = addFactors(rule, shapeOf(op.getIndices()));
  for (auto [dim, size] : llvm::enumerate(shapeOf(op.getTable()))) {
    if (int64_t(dim) == along) {
      // The table's factor is reduced with a sum: each rank gathers from its
      // own tile, with zeros for indices outside of it, and the results of the
      // ranks are added. `indexed` says that the operation itself sums no
      // elements.
      table.push_back(
          {rule.addFactor(size, FactorKind::Reduction, FactorCombiner::Sum)});
      rule.factors.back().indexed = true;
      llvm::append_range(result, indices);
    } else {
      table.push_back({rule.addFactor(size)});
      result.push_back(table.back());
    }
  }
  rule.operands = {table, indices};
  rule.results = {result};
  rule.linear = {{0}};
  return rule;
}

ShardingRule checkIndex(nn::CheckIndexOp op) { return elementwise(op); }

/// The padding of an index tensor has arbitrary contents. It is replaced by 0,
/// which is a valid index, so that nn.check_index does not report it.
LogicalResult planCheckIndex(nn::CheckIndexOp op, LocalPlan &plan) {
  const TensorFactors &dims = plan.rule().operands[0];
  for (size_t factor = 0; factor < plan.rule().factors.size(); ++factor)
    plan.setOperand(
        0, plan.masked(plan.operand(0), dims, factor, FactorCombiner::Sum));
  plan.setResults(plan.cloneLocal()->getResults());
  return success();
}

ShardingRule scatterAdd(nn::ScatterAddOp op) {
  ShardingRule rule;
  TensorFactors indices, updates, result;
  int64_t along = op.getDim();
  indices = addFactors(rule, shapeOf(op.getIndices()), FactorKind::Reduction,
                       FactorCombiner::Sum);
  for (auto [dim, size] : llvm::enumerate(shapeOf(op.getResult()))) {
    result.push_back({rule.addFactor(size)});
    if (int64_t(dim) == along)
      llvm::append_range(updates, indices);
    else
      updates.push_back(result.back());
  }
  rule.operands = {indices, updates};
  rule.results = {result};
  rule.linear = {{1}};
  return rule;
}

LogicalResult planGather(nn::GatherOp op, LocalPlan &plan) {
  plan.setOperand(1, inTile(plan, plan.operand(1),
                            plan.rule().operands[0][op.getDim()][0]));
  plan.setResults(plan.cloneLocal()->getResults());
  return success();
}

LogicalResult planScatterAdd(nn::ScatterAddOp op, LocalPlan &plan) {
  plan.setOperand(0, shifted(plan, plan.operand(0),
                             plan.rule().results[0][op.getDim()][0]));
  for (auto [factor, info] : llvm::enumerate(plan.rule().factors))
    if (info.kind == FactorKind::Reduction)
      plan.setOperand(1, plan.masked(plan.operand(1), plan.rule().operands[1],
                                     factor, FactorCombiner::Sum));
  plan.setResults(plan.cloneLocal()->getResults());
  return success();
}

} // namespace

void cleave::sharding::attachIndexing(MLIRContext *context) {
  attach<nn::GatherOp, gather, planGather>(context);
  attach<nn::CheckIndexOp, checkIndex, planCheckIndex>(context);
  attach<nn::ScatterAddOp, scatterAdd, planScatterAdd>(context);
}
