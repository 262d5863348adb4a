// Formulas of norms, softmax, cross-entropy, their gradients and argmax, as
// elementwise operations and row reductions.

#include "cleave/Interfaces/TensorExpr.h"

using namespace mlir;
using namespace cleave;
using nn::Combiner;

/// The mean of each row: [b, s, h] -> [b, s].
static Value rowMean(TensorExpr &e, Value x) {
  double count = e.extent(x, e.typeOf(x).getRank() - 1);
  return e.mul(e.reduceRows(Combiner::Sum, x), 1.0 / count);
}

/// 1/sqrt(meanSquare + epsilon).
static Value reciprocalRoot(TensorExpr &e, Value meanSquare,
                            const APFloat &epsilon) {
  return e.make<math::RsqrtOp>(e.add(meanSquare, epsilon.convertToDouble()));
}

Decomposed formula::layerNorm(nn::LayerNormOp op, TensorExpr &e) {
  Value x = op.getInput();
  RankedTensorType type = e.typeOf(x);
  Value mean = rowMean(e, x);
  Value centred = e.sub(x, e.alongRows(mean, type));
  Value rstd =
      reciprocalRoot(e, rowMean(e, e.mul(centred, centred)), op.getEpsilon());
  Value normal = e.mul(centred, e.alongRows(rstd, type));
  Value result = e.add(e.mul(normal, e.alongFeatures(op.getScale(), type)),
                       e.alongFeatures(op.getShift(), type));
  return SmallVector<Value>{result, mean, rstd};
}

Decomposed formula::layerNormGrad(nn::LayerNormGradOp op, TensorExpr &e) {
  Value x = op.getInput();
  RankedTensorType type = e.typeOf(x);
  Value g = e.mul(op.getCotangent(), e.alongFeatures(op.getScale(), type));
  Value rstd = e.alongRows(op.getRstd(), type);
  Value normal = e.mul(e.sub(x, e.alongRows(op.getMean(), type)), rstd);
  Value meanG = e.alongRows(rowMean(e, g), type);
  Value meanGN = e.alongRows(rowMean(e, e.mul(g, normal)), type);
  Value inner = e.sub(e.sub(g, meanG), e.mul(normal, meanGN));
  return SmallVector<Value>{e.mul(rstd, inner)};
}

Decomposed formula::rmsNorm(nn::RmsNormOp op, TensorExpr &e) {
  Value x = op.getInput();
  RankedTensorType type = e.typeOf(x);
  Value rstd = reciprocalRoot(e, rowMean(e, e.mul(x, x)), op.getEpsilon());
  Value normal = e.mul(x, e.alongRows(rstd, type));
  return SmallVector<Value>{e.mul(normal, e.alongFeatures(op.getScale(), type)),
                            rstd};
}

Decomposed formula::rmsNormGrad(nn::RmsNormGradOp op, TensorExpr &e) {
  Value x = op.getInput();
  RankedTensorType type = e.typeOf(x);
  Value g = e.mul(op.getCotangent(), e.alongFeatures(op.getScale(), type));
  Value rstd = e.alongRows(op.getRstd(), type);
  Value normal = e.mul(x, rstd);
  Value meanGN = e.alongRows(rowMean(e, e.mul(g, normal)), type);
  return SmallVector<Value>{e.mul(rstd, e.sub(g, e.mul(normal, meanGN)))};
}

Decomposed formula::softmax(nn::SoftmaxOp op, TensorExpr &e) {
  Value x = op.getInput();
  RankedTensorType type = e.typeOf(x);
  Value max = e.alongRows(e.reduceRows(Combiner::Max, x), type);
  Value exps = e.exp(e.sub(x, max));
  Value sum = e.reduceRows(Combiner::Sum, exps);
  Value inverse = e.div(e.splat(sum, 1.0), sum);
  return SmallVector<Value>{e.mul(exps, e.alongRows(inverse, type))};
}

/// Returns a mask [b, s, v] that is true where the class equals the row's
/// label. `labels` has shape [b, s].
static Value isLabel(TensorExpr &e, Value labels, RankedTensorType type) {
  RankedTensorType indexType = type.clone(e.typeOf(labels).getElementType());
  Value classes = e.index(indexType, type.getRank() - 1);
  return e.compare(arith::CmpIPredicate::eq, classes,
                   e.alongRows(labels, indexType));
}

/// Returns for each row whether its label counts in the loss: the label is the
/// number of a class and is not the ignored label.
static Value isCounted(TensorExpr &e, Value labels, int64_t classes,
                       int64_t ignore) {
  RankedTensorType type = e.typeOf(labels);
  // As an unsigned number, a negative label is large, so one unsigned
  // comparison excludes it, too.
  Value inside =
      e.compare(arith::CmpIPredicate::ult, labels, e.splatInt(type, classes));
  if (ignore < 0 || ignore >= classes)
    return inside;
  Value counted =
      e.compare(arith::CmpIPredicate::ne, labels, e.splatInt(type, ignore));
  return e.make<arith::AndIOp>(inside, counted);
}

Decomposed formula::crossEntropy(nn::CrossEntropyOp op, TensorExpr &e) {
  Value x = op.getLogits(), labels = op.getLabels();
  RankedTensorType type = e.typeOf(x);
  Value max = e.reduceRows(Combiner::Max, x);
  Value exps = e.exp(e.sub(x, e.alongRows(max, type)));
  Value log = e.make<math::LogOp>(e.reduceRows(Combiner::Sum, exps));
  Value lse = e.add(max, log);
  Value picked = e.reduceRows(
      Combiner::Sum, e.select(isLabel(e, labels, type), x, e.splat(x, 0.0)));
  Value counted = isCounted(e, labels, e.extent(x, type.getRank() - 1),
                            op.getIgnoreIndex());
  Value loss = e.select(counted, e.sub(lse, picked), e.splat(lse, 0.0));
  return SmallVector<Value>{loss, lse};
}

Decomposed formula::crossEntropyGrad(nn::CrossEntropyGradOp op, TensorExpr &e) {
  Value x = op.getLogits(), labels = op.getLabels();
  RankedTensorType type = e.typeOf(x);
  Value counted = isCounted(e, labels, e.extent(x, type.getRank() - 1),
                            op.getIgnoreIndex());
  Value g =
      e.select(counted, op.getCotangent(), e.splat(op.getCotangent(), 0.0));
  Value p = e.exp(e.sub(x, e.alongRows(op.getLse(), type)));
  Value one =
      e.select(isLabel(e, labels, type), e.splat(x, 1.0), e.splat(x, 0.0));
  return SmallVector<Value>{e.mul(e.alongRows(g, type), e.sub(p, one))};
}

/// Decomposes argmax. The result is the smallest index whose element equals the
/// maximum.
Decomposed formula::argMax(nn::ArgMaxOp op, TensorExpr &e) {
  Value input = op.getInput();
  RankedTensorType type = e.typeOf(input);
  int64_t dim = op.getDim();
  Value best = e.reduce(Combiner::Max, input, dim);
  SmallVector<int64_t> kept;
  for (int64_t i = 0; i < type.getRank(); ++i)
    if (i != dim)
      kept.push_back(i);
  best = e.broadcast(best, type, kept);
  Value found = isa<FloatType>(type.getElementType())
                    ? e.isLargest(input, best)
                    : e.compare(arith::CmpIPredicate::eq, input, best);
  RankedTensorType indexType = type.clone(op.getType().getElementType());
  Value index = e.index(indexType, dim);
  Value none = e.splatInt(indexType, e.extent(input, dim));
  Value result = e.reduce(Combiner::Min, e.select(found, index, none), dim);
  return SmallVector<Value>{result};
}
