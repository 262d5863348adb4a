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
  // Along the other dimensions, the mask depends on the index. Along dimension
  // 0, sample ids take the place of the index if the operation has them.
  for (const DimFactors &dim : ArrayRef<DimFactors>(dims).drop_front())
    rule.factors[dim[0]].indexed = true;
  return rule;
}

/// The local form of dropout. Its mask is a function of global indices, so the
/// tile's offset is added in every dimension but the first, for which sample
/// ids are used.
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
