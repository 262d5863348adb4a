// Sharding rules of dropout and the optimizers.

#include "Model.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::sharding;

namespace {

ShardingRule dropout(nn::DropoutOp op) {
  ShardingRule rule;
  TensorFactors dims = addFactors(rule, shapeOf(op.getInput()));
  rule.operands.assign(op->getNumOperands(), TensorFactors());
  rule.operands[0] = dims;
  rule.operands[3] = {dims[0]};
  rule.results = {dims};
  rule.linear = {{0}};
  // The dropout mask of an element is a function of its sample id and of its
  // global indices along all dimensions but the first. So if one of these
  // dimensions is split, each rank needs its tile's offset (`indexed`).
  for (const DimFactors &dim : ArrayRef<DimFactors>(dims).drop_front())
    rule.factors[dim[0]].indexed = true;
  return rule;
}

/// Emits the per-rank code of dropout. The mask is a function of global
/// indices, so the operation gets the tile's offset in every dimension but the
/// first, for which it reads sample ids.
LogicalResult planDropout(nn::DropoutOp op, LocalPlan &plan) {
  const TensorFactors &dims = plan.rule().results[0];
  bool anySplit = false;
  for (const DimFactors &dim : ArrayRef<DimFactors>(dims).drop_front())
    anySplit |= plan.isSplit(dim[0]);
  if (!anySplit) {
    plan.setResults(plan.cloneLocal()->getResults());
    return success();
  }
  OpBuilder &builder = plan.builder();
  auto scalar = RankedTensorType::get({}, builder.getI64Type());
  SmallVector<Value> offsets;
  for (auto [index, dim] :
       llvm::enumerate(ArrayRef<DimFactors>(dims).drop_front())) {
    Value offset =
        plan.isSplit(dim[0]) ? plan.offset(dim[0]) : plan.constant(scalar, 0);
    if (!op.getOffsets().empty())
      offset = arith::AddIOp::create(builder, plan.loc(), offset,
                                     plan.operand(4 + index));
    offsets.push_back(offset);
  }
  plan.setResults(
      nn::DropoutOp::create(builder, plan.loc(), plan.resultType(0),
                            plan.operand(0), plan.operand(1), plan.operand(2),
                            plan.operand(3), offsets, op.getPAttr(),
                            op.getOpIdAttr(), op.getGlobalShapeAttr())
          ->getResults());
  return success();
}

template <typename Op> ShardingRule update(Op op) { return elementwise(op); }

} // namespace

void cleave::sharding::attachTraining(MLIRContext *context) {
  attach<nn::DropoutOp, dropout, planDropout>(context);
  attach<nn::AdamWOp, update<nn::AdamWOp>>(context);
  attach<nn::SgdOp, update<nn::SgdOp>>(context);
}
