// Derivatives of attention and rotary positions.

#include "Model.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::derivative;

static LogicalResult rotary(nn::RotaryOp op, VJPContext &c) {
  if (c.wanted(1) || c.wanted(2))
    return op.emitOpError("cannot be differentiated with respect to its "
                          "angles: freeze what computes cos and sin");
  // The transpose of a rotation is the rotation by the negated angle.
  c.set(0,
        nn::RotaryOp::create(c.builder(), c.loc(), op.getType(), c.cotangent(0),
                             c.residual(op.getCos()), c.residual(op.getSin()),
                             op.getInterleaved(), !op.getInverse()));
  return success();
}

static LogicalResult attention(nn::AttentionOp op, VJPContext &c) {
  if (failed(refuseCotangent(op, c, 1, "lse")))
    return failure();
  if (!c.cotangent(0))
    return success();
  if (op.getBias() && c.wanted(op.getBiasMutable().begin()->getOperandNumber()))
    return op.emitOpError("cannot be differentiated with respect to its bias: "
                          "freeze the parameters that compute it");
  auto optional = [&](Value value) {
    return value ? c.residual(value) : Value();
  };
  auto grad = nn::AttentionGradOp::create(
      c.builder(), c.loc(), op.getQuery().getType(), op.getKey().getType(),
      op.getValue().getType(), c.cotangent(0), c.residual(op.getQuery()),
      c.residual(op.getKey()), c.residual(op.getValue()),
      c.residual(op.getResult()), c.residual(op.getLse()),
      optional(op.getQPositions()), optional(op.getKPositions()),
      optional(op.getQSegments()), optional(op.getKSegments()),
      optional(op.getKeyMask()), optional(op.getBias()),
      optional(op.getDropoutKeys()), optional(op.getQIndex()),
      optional(op.getKIndex()), op.getScaleAttr(), op.getCausalAttr(),
      op.getWindowAttr(), op.getSoftcapAttr(), op.getDropoutAttr());
  for (unsigned index = 0; index < 3; ++index)
    if (c.wanted(index))
      c.set(index, grad->getResult(index));
  return success();
}

void cleave::derivative::attachAttention(MLIRContext *context) {
  attach<nn::RotaryOp, rotary>(context);
  attach<nn::AttentionOp, attention>(context);
}
