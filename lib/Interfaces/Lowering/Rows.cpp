// Row operations: norms, softmax, cross-entropy and their gradients, rotary.

#include "Model.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::lowering;

namespace {

using nn::Combiner;

/// The mean of each row: [b, s, h] -> [b, s].
Value rowMean(TensorExpr &e, Value x) {
  double count = e.typeOf(x).getShape().back();
  return e.mul(e.reduceRows(Combiner::Sum, x), 1.0 / count);
}

/// 1/sqrt(meanSquare + epsilon).
Value reciprocalRoot(TensorExpr &e, Value meanSquare, const APFloat &epsilon) {
  return e.make<math::RsqrtOp>(e.add(meanSquare, epsilon.convertToDouble()));
}

Decomposed layerNorm(nn::LayerNormOp op, TensorExpr &e) {
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

Decomposed layerNormGrad(nn::LayerNormGradOp op, TensorExpr &e) {
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

Decomposed rmsNorm(nn::RmsNormOp op, TensorExpr &e) {
  Value x = op.getInput();
  RankedTensorType type = e.typeOf(x);
  Value rstd = reciprocalRoot(e, rowMean(e, e.mul(x, x)), op.getEpsilon());
  Value normal = e.mul(x, e.alongRows(rstd, type));
  return SmallVector<Value>{e.mul(normal, e.alongFeatures(op.getScale(), type)),
                            rstd};
}

Decomposed rmsNormGrad(nn::RmsNormGradOp op, TensorExpr &e) {
  Value x = op.getInput();
  RankedTensorType type = e.typeOf(x);
  Value g = e.mul(op.getCotangent(), e.alongFeatures(op.getScale(), type));
  Value rstd = e.alongRows(op.getRstd(), type);
  Value normal = e.mul(x, rstd);
  Value meanGN = e.alongRows(rowMean(e, e.mul(g, normal)), type);
  return SmallVector<Value>{e.mul(rstd, e.sub(g, e.mul(normal, meanGN)))};
}

Decomposed softmax(nn::SoftmaxOp op, TensorExpr &e) {
  Value x = op.getInput();
  RankedTensorType type = e.typeOf(x);
  Value max = e.alongRows(e.reduceRows(Combiner::Max, x), type);
  Value exps = e.exp(e.sub(x, max));
  Value sum = e.reduceRows(Combiner::Sum, exps);
  Value inverse = e.div(e.splat(sum, 1.0), sum);
  return SmallVector<Value>{e.mul(exps, e.alongRows(inverse, type))};
}

/// Whether each class is the row's label: [b, s] -> [b, s, v].
Value isLabel(TensorExpr &e, Value labels, RankedTensorType type) {
  RankedTensorType indexType = type.clone(e.typeOf(labels).getElementType());
  Value classes = e.make<nn::IotaOp>(indexType, type.getRank() - 1);
  return e.compare(arith::CmpIPredicate::eq, classes,
                   e.alongRows(labels, indexType));
}

/// Whether each row's label is counted.
Value isCounted(TensorExpr &e, Value labels, int64_t classes, int64_t ignore) {
  RankedTensorType type = e.typeOf(labels);
  // Unsigned: a negative label is a large number.
  Value inside =
      e.compare(arith::CmpIPredicate::ult, labels, e.splatInt(type, classes));
  if (ignore < 0 || ignore >= classes)
    return inside;
  Value counted =
      e.compare(arith::CmpIPredicate::ne, labels, e.splatInt(type, ignore));
  return e.make<arith::AndIOp>(inside, counted);
}

Decomposed crossEntropy(nn::CrossEntropyOp op, TensorExpr &e) {
  Value x = op.getLogits(), labels = op.getLabels();
  RankedTensorType type = e.typeOf(x);
  Value max = e.reduceRows(Combiner::Max, x);
  Value exps = e.exp(e.sub(x, e.alongRows(max, type)));
  Value log = e.make<math::LogOp>(e.reduceRows(Combiner::Sum, exps));
  Value lse = e.add(max, log);
  Value picked = e.reduceRows(
      Combiner::Sum, e.select(isLabel(e, labels, type), x, e.splat(x, 0.0)));
  Value counted =
      isCounted(e, labels, type.getShape().back(), op.getIgnoreIndex());
  Value loss = e.select(counted, e.sub(lse, picked), e.splat(lse, 0.0));
  return SmallVector<Value>{loss, lse};
}

Decomposed crossEntropyGrad(nn::CrossEntropyGradOp op, TensorExpr &e) {
  Value x = op.getLogits(), labels = op.getLabels();
  RankedTensorType type = e.typeOf(x);
  Value counted =
      isCounted(e, labels, type.getShape().back(), op.getIgnoreIndex());
  Value g =
      e.select(counted, op.getCotangent(), e.splat(op.getCotangent(), 0.0));
  Value p = e.exp(e.sub(x, e.alongRows(op.getLse(), type)));
  Value one =
      e.select(isLabel(e, labels, type), e.splat(x, 1.0), e.splat(x, 0.0));
  return SmallVector<Value>{e.mul(e.alongRows(g, type), e.sub(p, one))};
}

/// The part [offset, offset + size) of the last dimension, by `stride`.
Value lastPart(TensorExpr &e, Value x, int64_t offset, int64_t size,
               int64_t stride = 1) {
  RankedTensorType type = e.typeOf(x);
  SmallVector<int64_t> offsets(type.getRank(), 0), sizes(type.getShape()),
      strides(type.getRank(), 1);
  offsets.back() = offset;
  sizes.back() = size;
  strides.back() = stride;
  auto array = [&](ArrayRef<int64_t> v) {
    return e.builder.getDenseI64ArrayAttr(v);
  };
  return e.make<nn::SliceOp>(x, array(offsets), array(sizes), array(strides));
}

Decomposed rotary(nn::RotaryOp op, TensorExpr &e) {
  Value x = op.getInput();
  RankedTensorType type = e.typeOf(x);
  int64_t rank = type.getRank(), half = type.getShape().back() / 2;
  bool interleaved = op.getInterleaved();
  Value a = lastPart(e, x, 0, half, interleaved ? 2 : 1);
  Value b = lastPart(e, x, interleaved ? 1 : half, half, interleaved ? 2 : 1);
  // cos and sin are [s, d/2] or [b, s, d/2].
  RankedTensorType halfType = e.typeOf(a);
  SmallVector<int64_t> dims{1, rank - 1};
  if (e.typeOf(op.getCos()).getRank() == 3)
    dims.insert(dims.begin(), 0);
  Value cos = e.broadcast(op.getCos(), halfType, dims);
  Value sin = e.broadcast(op.getSin(), halfType, dims);
  if (op.getInverse())
    sin = e.neg(sin);
  Value first = e.sub(e.mul(a, cos), e.mul(b, sin));
  Value second = e.add(e.mul(b, cos), e.mul(a, sin));
  if (!interleaved)
    return SmallVector<Value>{
        e.make<nn::ConcatOp>(ValueRange{first, second}, rank - 1)};
  // Pairs side by side: [.., d/2, 2] -> [.., d].
  SmallVector<int64_t> single(halfType.getShape());
  single.push_back(1);
  first = e.make<nn::ReshapeOp>(halfType.clone(single), first);
  second = e.make<nn::ReshapeOp>(halfType.clone(single), second);
  Value pairs = e.make<nn::ConcatOp>(ValueRange{first, second}, rank);
  return SmallVector<Value>{e.make<nn::ReshapeOp>(type, pairs)};
}

} // namespace

void cleave::lowering::attachRows(MLIRContext *context) {
  constexpr KernelClass row = KernelClass::Row;
  attach<nn::SoftmaxOp, row, softmax>(context);
  attach<nn::LayerNormOp, row, layerNorm>(context);
  attach<nn::LayerNormGradOp, row, layerNormGrad>(context);
  attach<nn::RmsNormOp, row, rmsNorm>(context);
  attach<nn::RmsNormGradOp, row, rmsNormGrad>(context);
  attach<nn::CrossEntropyOp, row, crossEntropy>(context);
  attach<nn::CrossEntropyGradOp, row, crossEntropyGrad>(context);
  attach<nn::RotaryOp, row, rotary>(context);
}
