// Norms along the last dimension, first without scale and shift:
//   x * rstd, rstd = 1 / sqrt(mean(x * x) + epsilon)            -> rms_norm
//   c * rstd, c = x - mean(x), rstd from the mean of c * c      -> layer_norm
// and then scale and shift are taken in.

#include "Dataflow.h"

#include <cmath>

using namespace mlir;

namespace cleave::nn {

namespace {

/// If `value` is broadcast only along its last dimension, returns the operand
/// of the broadcast; otherwise null.
Value alongRows(Value value) {
  auto broadcast = value.getDefiningOp<BroadcastOp>();
  if (!broadcast || rankOf(broadcast.getInput()) != rankOf(value) - 1 ||
      !isIdentity(broadcast.getDims()))
    return {};
  return broadcast.getInput();
}

/// If `value` is a mean along the last dimension, sum(x) / n or sum(x) * (1/n),
/// returns x; otherwise null.
Value meanOf(Value value) {
  Value sum;
  double factor = 0;
  if (auto div = value.getDefiningOp<arith::DivFOp>()) {
    sum = div.getLhs();
    if (std::optional<double> splat = splatOf(div.getRhs()))
      factor = 1 / *splat;
  } else if (auto mul = value.getDefiningOp<arith::MulFOp>()) {
    for (auto [a, b] : {std::pair(mul.getLhs(), mul.getRhs()),
                        std::pair(mul.getRhs(), mul.getLhs())})
      if (std::optional<double> splat = splatOf(b)) {
        sum = a;
        factor = *splat;
      }
  }
  auto reduce = sum ? sum.getDefiningOp<ReduceOp>() : ReduceOp();
  if (!reduce || reduce.getCombiner() != Combiner::Sum)
    return {};
  int64_t last = rankOf(reduce.getInput()) - 1;
  if (reduce.getDims() != ArrayRef<int64_t>(last))
    return {};
  double size = shapeOf(reduce.getInput())[last];
  if (std::abs(factor * size - 1) > 1e-6)
    return {};
  return reduce.getInput();
}

/// Returns x if `value` is x * x or x^2; otherwise null.
Value squareOf(Value value) {
  if (auto mul = value.getDefiningOp<arith::MulFOp>())
    return mul.getLhs() == mul.getRhs() ? mul.getLhs() : Value();
  if (auto pow = value.getDefiningOp<math::PowFOp>())
    return isSplat(pow.getRhs(), 2) ? pow.getLhs() : Value();
  return {};
}

/// mean(x^2) + epsilon.
struct Moment {
  Value x;
  double epsilon = 0;
};
std::optional<Moment> momentOf(Value value) {
  auto add = value.getDefiningOp<arith::AddFOp>();
  if (!add)
    return std::nullopt;
  for (auto [mean, epsilon] : {std::pair(add.getLhs(), add.getRhs()),
                               std::pair(add.getRhs(), add.getLhs())}) {
    std::optional<double> number = splatOf(epsilon);
    Value squared = meanOf(mean);
    Value x = squared ? squareOf(squared) : Value();
    if (number && x)
      return Moment{x, *number};
  }
  return std::nullopt;
}

/// 1 / sqrt(moment), or with `inverted` sqrt(moment).
std::optional<Moment> rootOf(Value value, bool inverted) {
  if (inverted) {
    auto sqrt = value.getDefiningOp<math::SqrtOp>();
    return sqrt ? momentOf(sqrt.getOperand()) : std::nullopt;
  }
  if (auto rsqrt = value.getDefiningOp<math::RsqrtOp>())
    return momentOf(rsqrt.getOperand());
  auto div = value.getDefiningOp<arith::DivFOp>();
  if (!div || !isSplat(div.getLhs(), 1))
    return std::nullopt;
  return rootOf(div.getRhs(), /*inverted=*/true);
}

/// Returns x if `value` is x - mean(x); otherwise null.
Value centredFrom(Value value) {
  auto sub = value.getDefiningOp<arith::SubFOp>();
  Value mean = sub ? alongRows(sub.getRhs()) : Value();
  return mean && meanOf(mean) == sub.getLhs() ? sub.getLhs() : Value();
}

RankedTensorType rowsOf(RankedTensorType type) {
  return type.clone(type.getShape().drop_back());
}

LogicalResult raise(Operation *op, Value x, Value root, bool inverted,
                    PatternRewriter &rewriter) {
  std::optional<Moment> moment = rootOf(root, inverted);
  if (!moment || moment->x != x)
    return failure();
  RankedTensorType type = typeOf(x);
  auto feature = type.clone({type.getShape().back()});
  Location loc = op->getLoc();
  Value one = createSplat(rewriter, loc, feature, 1);
  APFloat epsilon(moment->epsilon);
  if (Value input = centredFrom(x)) {
    Value zero = createSplat(rewriter, loc, feature, 0);
    auto norm = LayerNormOp::create(rewriter, loc, type, rowsOf(type),
                                    rowsOf(type), input, one, zero, epsilon);
    rewriter.replaceOp(op, norm.getResult());
  } else {
    auto norm =
        RmsNormOp::create(rewriter, loc, type, rowsOf(type), x, one, epsilon);
    rewriter.replaceOp(op, norm.getResult());
  }
  return success();
}

struct RaiseNormProduct : OpRewritePattern<arith::MulFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::MulFOp op,
                                PatternRewriter &rewriter) const override {
    for (auto [x, factor] : {std::pair(op.getLhs(), op.getRhs()),
                             std::pair(op.getRhs(), op.getLhs())})
      if (Value root = alongRows(factor))
        if (succeeded(raise(op, x, root, /*inverted=*/false, rewriter)))
          return success();
    return rewriter.notifyMatchFailure(op, "no row norm");
  }
};

struct RaiseNormQuotient : OpRewritePattern<arith::DivFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::DivFOp op,
                                PatternRewriter &rewriter) const override {
    Value root = alongRows(op.getRhs());
    if (root &&
        succeeded(raise(op, op.getLhs(), root, /*inverted=*/true, rewriter)))
      return success();
    return rewriter.notifyMatchFailure(op, "no row norm");
  }
};

/// If `value` is a vector along the last dimension that is broadcast over all
/// others, returns the vector; otherwise null.
Value featureOf(Value value) {
  auto broadcast = value.getDefiningOp<BroadcastOp>();
  if (!broadcast || broadcast.getDims() != ArrayRef<int64_t>(rankOf(value) - 1))
    return {};
  return broadcast.getInput();
}

/// norm(x; 1, 0) * scale.
struct TakeScale : OpRewritePattern<arith::MulFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::MulFOp op,
                                PatternRewriter &rewriter) const override {
    for (auto [normed, factor] : {std::pair(op.getLhs(), op.getRhs()),
                                  std::pair(op.getRhs(), op.getLhs())}) {
      Value scale = featureOf(factor);
      if (!scale)
        continue;
      if (auto norm = normed.getDefiningOp<RmsNormOp>();
          norm && normed == norm.getResult() && isSplat(norm.getScale(), 1)) {
        auto scaled =
            RmsNormOp::create(rewriter, op.getLoc(), norm.getResult().getType(),
                              norm.getRstd().getType(), norm.getInput(), scale,
                              norm.getEpsilon());
        rewriter.replaceOp(op, scaled.getResult());
        return success();
      }
      if (auto norm = normed.getDefiningOp<LayerNormOp>();
          norm && normed == norm.getResult() && isSplat(norm.getScale(), 1) &&
          isSplat(norm.getShift(), 0)) {
        auto scaled = LayerNormOp::create(
            rewriter, op.getLoc(), norm.getResult().getType(),
            norm.getMean().getType(), norm.getRstd().getType(), norm.getInput(),
            scale, norm.getShift(), norm.getEpsilon());
        rewriter.replaceOp(op, scaled.getResult());
        return success();
      }
    }
    return rewriter.notifyMatchFailure(op, "no scaled norm");
  }
};

/// norm(x; scale, 0) + shift.
struct TakeShift : OpRewritePattern<arith::AddFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::AddFOp op,
                                PatternRewriter &rewriter) const override {
    for (auto [normed, term] : {std::pair(op.getLhs(), op.getRhs()),
                                std::pair(op.getRhs(), op.getLhs())}) {
      Value shift = featureOf(term);
      auto norm = normed.getDefiningOp<LayerNormOp>();
      if (!shift || !norm || normed != norm.getResult() ||
          !isSplat(norm.getShift(), 0) || !normed.hasOneUse())
        continue;
      auto shifted = LayerNormOp::create(
          rewriter, op.getLoc(), norm.getResult().getType(),
          norm.getMean().getType(), norm.getRstd().getType(), norm.getInput(),
          norm.getScale(), shift, norm.getEpsilon());
      rewriter.replaceOp(op, shifted.getResult());
      return success();
    }
    return rewriter.notifyMatchFailure(op, "no shifted norm");
  }
};

} // namespace

void populateRaiseNormPatterns(RewritePatternSet &patterns) {
  patterns.add<RaiseNormProduct, RaiseNormQuotient, TakeScale, TakeShift>(
      patterns.getContext());
}

} // namespace cleave::nn
