// Derivatives of norms, softmax, cross-entropy and dropout.

#include "Model.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::derivative;

namespace {
/// Builds expressions of tensors [..., h] and their row statistics [...].
struct Rows {
  VJPContext &c;
  RankedTensorType type;

  Value mul(Value a, Value b) {
    return arith::MulFOp::create(c.builder(), c.loc(), a, b);
  }
  Value sub(Value a, Value b) {
    return arith::SubFOp::create(c.builder(), c.loc(), a, b);
  }
  /// [...] -> [..., h]
  Value spread(Value row) {
    auto dims = llvm::to_vector(llvm::seq<int64_t>(0, type.getRank() - 1));
    return nn::BroadcastOp::create(c.builder(), c.loc(), type, row, dims);
  }
  /// [..., h] -> [...]
  Value sumOfRow(Value value) {
    return nn::ReduceOp::create(c.builder(), c.loc(), nn::Combiner::Sum, value,
                                ArrayRef<int64_t>{type.getRank() - 1});
  }
  /// [..., h] -> [h]
  Value sumOfRows(Value value) {
    auto dims = llvm::to_vector(llvm::seq<int64_t>(0, type.getRank() - 1));
    return c.builder().createOrFold<nn::ReduceOp>(c.loc(), nn::Combiner::Sum,
                                                  value, dims);
  }
};
} // namespace

static Rows rowsOf(VJPContext &c, Value value) {
  return {c, cast<RankedTensorType>(value.getType())};
}

static LogicalResult layerNorm(nn::LayerNormOp op, VJPContext &c) {
  if (failed(refuseCotangent(op, c, 1, "mean")) ||
      failed(refuseCotangent(op, c, 2, "rstd")))
    return failure();
  if (!c.cotangent(0))
    return success();
  Rows rows = rowsOf(c, op.getInput());
  Value cotangent = c.cotangent(0);
  if (c.wanted(0))
    c.set(0, nn::LayerNormGradOp::create(
                 c.builder(), c.loc(), rows.type, cotangent,
                 c.residual(op.getInput()), c.residual(op.getScale()),
                 c.residual(op.getMean()), c.residual(op.getRstd())));
  if (c.wanted(1)) {
    Value centred = rows.sub(c.residual(op.getInput()),
                             rows.spread(c.residual(op.getMean())));
    Value normal = rows.mul(centred, rows.spread(c.residual(op.getRstd())));
    c.set(1, rows.sumOfRows(rows.mul(cotangent, normal)));
  }
  if (c.wanted(2))
    c.set(2, rows.sumOfRows(cotangent));
  return success();
}

static LogicalResult rmsNorm(nn::RmsNormOp op, VJPContext &c) {
  if (failed(refuseCotangent(op, c, 1, "rstd")))
    return failure();
  if (!c.cotangent(0))
    return success();
  Rows rows = rowsOf(c, op.getInput());
  Value cotangent = c.cotangent(0);
  if (c.wanted(0))
    c.set(0, nn::RmsNormGradOp::create(c.builder(), c.loc(), rows.type,
                                       cotangent, c.residual(op.getInput()),
                                       c.residual(op.getScale()),
                                       c.residual(op.getRstd())));
  if (c.wanted(1)) {
    Value normal = rows.mul(c.residual(op.getInput()),
                            rows.spread(c.residual(op.getRstd())));
    c.set(1, rows.sumOfRows(rows.mul(cotangent, normal)));
  }
  return success();
}

static LogicalResult softmax(nn::SoftmaxOp op, VJPContext &c) {
  Rows rows = rowsOf(c, op.getResult()); // y * (g - sum(g * y))
  Value y = c.residual(op.getResult()), cotangent = c.cotangent(0);
  Value inner = rows.spread(rows.sumOfRow(rows.mul(cotangent, y)));
  c.set(0, rows.mul(y, rows.sub(cotangent, inner)));
  return success();
}

static LogicalResult crossEntropy(nn::CrossEntropyOp op, VJPContext &c) {
  if (failed(refuseCotangent(op, c, 1, "lse")))
    return failure();
  if (!c.cotangent(0))
    return success();
  c.set(0, nn::CrossEntropyGradOp::create(
               c.builder(), c.loc(), op.getLogits().getType(), c.cotangent(0),
               c.residual(op.getLogits()), c.residual(op.getLabels()),
               c.residual(op.getLse()), op.getIgnoreIndexAttr()));
  return success();
}

static LogicalResult dropout(nn::DropoutOp op, VJPContext &c) {
  // Dropout masks depend on indices and not on values, so the cotangent is
  // multiplied by the same mask as the value.
  IRMapping mapping;
  mapping.map(op.getInput(), c.cotangent(0));
  for (Value operand : op->getOperands().drop_front())
    mapping.map(operand, c.residual(operand));
  c.set(0, c.builder().clone(*op, mapping)->getResult(0));
  return success();
}

void cleave::derivative::attachRows(MLIRContext *context) {
  attach<nn::LayerNormOp, layerNorm>(context);
  attach<nn::RmsNormOp, rmsNorm>(context);
  attach<nn::SoftmaxOp, softmax>(context);
  attach<nn::CrossEntropyOp, crossEntropy>(context);
  attach<nn::DropoutOp, dropout>(context);
}
