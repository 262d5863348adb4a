// Streams the keys and values of attention tile by tile. In the forward pass,
// the partial results for the tiles are averaged, weighted by their sums of
// exponentials (Rabe and Staats, 2021; Liu et al., 2023). The backward pass
// reads the sums over all keys, so its partial results are simply added.

#include "cleave/Interfaces/Models.h"
#include "cleave/Interfaces/Streaming.h"
#include "cleave/Interfaces/TensorExpr.h"

#include "mlir/IR/DialectRegistry.h"

#include <limits>

using namespace mlir;
using namespace cleave;

#include "cleave/Interfaces/Streaming.cpp.inc"

namespace {

constexpr double kHidden = -std::numeric_limits<double>::infinity();

/// The factor of the keys: dimension 1 of the key operand.
template <typename Op> int64_t keyFactor(Op op) {
  ShardingRule rule = ShardingRule::of(op);
  return rule.operands[op.getKeyMutable().getOperandNumber()][1][0];
}

template <typename Op> SmallVector<unsigned> keyAndValue(Op op) {
  return {op.getKeyMutable().getOperandNumber(),
          op.getValueMutable().getOperandNumber()};
}

template <typename Op> void maskKeys(Op op, OpBuilder &builder, Value inside) {
  TensorExpr e(builder, op.getLoc());
  auto type = RankedTensorType::get(
      op.getKey().getType().getShape().take_front(2), builder.getI1Type());
  Value mask = e.broadcast(inside, type, {1});
  if (Value given = op.getKeyMask())
    mask = e.make<arith::AndIOp>(given, mask);
  op.getKeyMaskMutable().assign(mask);
}

/// Adds operands with positions to an attention whose mask compares the indices
/// of queries and keys. A tile of its keys can then be masked without knowing
/// the tile's offset in the sequence.
template <typename Op> void givePositions(Op op, OpBuilder &builder) {
  if (op.getQPositions() || (!op.getCausal() && !op.getWindow()))
    return;
  auto index = [&](Value value) -> Value {
    auto type = RankedTensorType::get({TensorExpr::typeOf(value).getDimSize(1)},
                                      builder.getI64Type());
    return nn::IotaOp::create(builder, op.getLoc(), type, 0);
  };
  op.getQPositionsMutable().assign(index(op.getQuery()));
  op.getKPositionsMutable().assign(index(op.getKey()));
}

template <typename Op> std::optional<StreamReach> reachOf(Op op) {
  int64_t window = op.getWindow();
  if (!window || !op.getQPositions())
    return std::nullopt;
  return StreamReach{op.getQPositions(), op.getKPositions(), window - 1,
                     op.getCausal() ? 0 : window - 1};
}

/// Extends partial results of bf16 to f32, in which they are combined.
Value widened(TensorExpr &e, Value value) {
  RankedTensorType type = TensorExpr::typeOf(value);
  if (!type.getElementType().isBF16())
    return value;
  return e.make<arith::ExtFOp>(type.clone(e.builder.getF32Type()), value);
}
Value rounded(TensorExpr &e, Value value, Type type) {
  return value.getType() == type ? value : e.make<arith::TruncFOp>(type, value);
}

/// Broadcasts statistics [b, n, g, s] to results [b, s, n, g, e].
Value alongResult(TensorExpr &e, OpBuilder &builder, Value statistic,
                  RankedTensorType type) {
  Value moved = e.make<nn::TransposeOp>(
      statistic, builder.getDenseI64ArrayAttr({0, 3, 1, 2}));
  return e.broadcast(moved, type, {0, 1, 2, 3});
}

/// Combines the results (o1, lse1) and (o2, lse2) for two sets of keys: o = (o1
/// w1 + o2 w2) / (w1 + w2) and lse = m + log(w1 + w2), with m = max(lse1, lse2)
/// and wi = exp(lsei - m). A query with all keys masked has lse = -inf.
SmallVector<Value> combineAttention(nn::AttentionOp op, OpBuilder &builder,
                                    ValueRange some, ValueRange others) {
  TensorExpr e(builder, op.getLoc());
  Value first = widened(e, some[0]), second = widened(e, others[0]);
  RankedTensorType type = TensorExpr::typeOf(first),
                   statistics = TensorExpr::typeOf(some[1]);
  Value highest = e.make<arith::MaximumFOp>(some[1], others[1]);
  Value none = e.make<arith::CmpFOp>(arith::CmpFPredicate::OEQ, highest,
                                     e.splat(statistics, kHidden));
  Value base = e.select(none, e.splat(statistics, 0), highest);
  Value w1 = e.exp(e.sub(some[1], base)), w2 = e.exp(e.sub(others[1], base));
  Value sum = e.add(w1, w2);
  Value divisor = e.select(none, e.splat(statistics, 1), sum);
  auto weighed = [&](Value result, Value weight) {
    return e.mul(result, alongResult(e, builder, e.div(weight, divisor), type));
  };
  Value result = e.add(weighed(first, w1), weighed(second, w2));
  Value lse =
      e.select(none, highest, e.add(base, e.make<math::LogOp>(divisor)));
  return {rounded(e, result, some[0].getType()), lse};
}

/// Like combineAttention, but combines the results of all ranks: o = sum(o_r
/// w_r) / sum(w_r).
SmallVector<Value> combineAttentionOfRanks(nn::AttentionOp op,
                                           OpBuilder &builder, ValueRange own,
                                           RankReduction reduce) {
  TensorExpr e(builder, op.getLoc());
  Value first = widened(e, own[0]);
  RankedTensorType type = TensorExpr::typeOf(first),
                   statistics = TensorExpr::typeOf(own[1]);
  Value highest = reduce(own[1], dist::ReduceKind::Max)[0];
  Value none = e.make<arith::CmpFOp>(arith::CmpFPredicate::OEQ, highest,
                                     e.splat(statistics, kHidden));
  Value base = e.select(none, e.splat(statistics, 0), highest);
  Value weight = e.exp(e.sub(own[1], base));
  Value weighed = e.mul(first, alongResult(e, builder, weight, type));
  SmallVector<Value> sums = reduce({weighed, weight}, dist::ReduceKind::Sum);
  Value divisor = e.select(none, e.splat(statistics, 1), sums[1]);
  Value result = e.div(sums[0], alongResult(e, builder, divisor, type));
  Value lse =
      e.select(none, highest, e.add(base, e.make<math::LogOp>(divisor)));
  return {rounded(e, result, own[0].getType()), lse};
}

struct AttentionModel
    : StreamingInterface::ExternalModel<AttentionModel, nn::AttentionOp> {
  int64_t getStreamedFactor(Operation *op) const {
    return keyFactor(cast<nn::AttentionOp>(op));
  }
  SmallVector<unsigned> getStreamedOperands(Operation *op) const {
    return keyAndValue(cast<nn::AttentionOp>(op));
  }
  SmallVector<Value> combineTiles(Operation *op, OpBuilder &builder,
                                  ValueRange some, ValueRange others) const {
    return combineAttention(cast<nn::AttentionOp>(op), builder, some, others);
  }
  SmallVector<Value> combineRanks(Operation *op, OpBuilder &builder,
                                  ValueRange own, RankReduction reduce) const {
    return combineAttentionOfRanks(cast<nn::AttentionOp>(op), builder, own,
                                   reduce);
  }
  void nameIndices(Operation *op, OpBuilder &builder) const {
    givePositions(cast<nn::AttentionOp>(op), builder);
  }
  void maskTile(Operation *op, OpBuilder &builder, Value inside) const {
    maskKeys(cast<nn::AttentionOp>(op), builder, inside);
  }
  std::optional<StreamReach> getReach(Operation *op) const {
    return reachOf(cast<nn::AttentionOp>(op));
  }
};

struct AttentionGradModel
    : StreamingInterface::ExternalModel<AttentionGradModel,
                                        nn::AttentionGradOp> {
  int64_t getStreamedFactor(Operation *op) const {
    return keyFactor(cast<nn::AttentionGradOp>(op));
  }
  SmallVector<unsigned> getStreamedOperands(Operation *op) const {
    return keyAndValue(cast<nn::AttentionGradOp>(op));
  }
  SmallVector<Value> combineTiles(Operation *op, OpBuilder &builder,
                                  ValueRange some, ValueRange others) const {
    TensorExpr e(builder, op->getLoc());
    Value sum = e.add(widened(e, some[0]), widened(e, others[0]));
    return {rounded(e, sum, some[0].getType())};
  }
  SmallVector<Value> combineRanks(Operation *op, OpBuilder &builder,
                                  ValueRange own, RankReduction reduce) const {
    return reduce(own, dist::ReduceKind::Sum);
  }
  void nameIndices(Operation *op, OpBuilder &builder) const {
    givePositions(cast<nn::AttentionGradOp>(op), builder);
  }
  void maskTile(Operation *op, OpBuilder &builder, Value inside) const {
    maskKeys(cast<nn::AttentionGradOp>(op), builder, inside);
  }
  std::optional<StreamReach> getReach(Operation *op) const {
    return reachOf(cast<nn::AttentionGradOp>(op));
  }
};

} // namespace

void cleave::registerStreamingModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, nn::NNDialect *) {
    nn::AttentionOp::attachInterface<AttentionModel>(*context);
    nn::AttentionGradOp::attachInterface<AttentionGradModel>(*context);
  });
}
