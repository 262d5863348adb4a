// Generates attention with positions, masks and biases, its gradient, and
// rotary embeddings.

#include "Generator.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::random;

namespace {

/// An attention of random sizes and options, and its gradient.
class RandomAttention {
public:
  explicit RandomAttention(Generator &g) : g(g) {}

  /// Adds the attention to the program. Returns false if it would be too large.
  bool add() {
    if (!drawOperands())
      return false;
    drawMasks();
    auto output = g.floats({b, s, n, h, e}), lse = g.floats({b, n, h, s});
    auto op = nn::AttentionOp::create(
        g.b, g.loc, TypeRange{output, lse}, query.value, key.value, value.value,
        qPositions, kPositions, qSegments, kSegments, keyMask, bias,
        dropoutKeys, qIndex, kIndex, APFloat(scale), causal, window,
        APFloat(softcap), APFloat(dropout));
    g.give(op.getResult(), value.bound / (1 - dropout), false);
    if (g.random.chance(2, 3))
      addGradient(op);
    else if (!mayHide)
      g.give(op.getLse(), 100, false);
    return true;
  }

private:
  bool drawOperands() {
    query = g.any(2, 5);
    query = g.tamed(g.reshaped(query, 5), 10);
    b = query.shape()[0], s = query.shape()[1], n = query.shape()[2];
    h = query.shape()[3], d = query.shape()[4];
    t = g.random.chance(1, 2) ? s : g.size();
    e = g.random.chance(1, 2) ? d : g.size();
    if (b * t * n * std::max(d, e) > g.kMaxElements ||
        b * s * n * h * std::max(t, e) > 2 * g.kMaxElements)
      return false;
    key = g.tamed(g.like(g.floats({b, t, n, d})), 10);
    value = g.like(g.floats({b, t, n, e}), 1e4);
    // Limits the scale so that the scores, and therefore their exponentials,
    // stay small.
    scale = std::min(0.5, 10 / (d * query.bound * key.bound));
    return true;
  }

  /// Draws the options that hide keys or change scores and weights.
  void drawMasks() {
    causal = g.random.chance(1, 2);
    window = g.random.chance(1, 4) ? g.size() : 0;
    softcap = g.random.chance(1, 4) ? 2 : 0;
    mayHide = causal || window != 0;
    bool perSample = g.random.chance(1, 3);
    if (g.random.chance(1, 2)) {
      qPositions = positions(s, perSample);
      kPositions = positions(t, perSample);
    }
    if (g.random.chance(1, 4)) {
      qSegments = segments(s);
      kSegments = segments(t);
      mayHide = true;
    }
    if (g.random.chance(1, 3)) {
      keyMask = g.argument(g.bools({b, t})).value;
      mayHide = true;
    }
    if (g.random.chance(1, 3))
      drawBias();
    if (g.random.chance(1, 3))
      drawDropout();
  }

  Value positions(int64_t length, bool perSample) {
    RankedTensorType type = perSample ? g.ints({b, length}) : g.ints({length});
    if (g.random.chance(1, 2))
      return nn::IotaOp::create(g.b, g.loc, type, perSample ? 1 : 0);
    return g.like(type).value;
  }

  /// Returns the segment ids of documents of three tokens each.
  Value segments(int64_t length) {
    RankedTensorType type = g.ints({length});
    Value index = nn::IotaOp::create(g.b, g.loc, type, 0);
    return arith::DivSIOp::create(g.b, g.loc, index,
                                  nn::createSplat(g.b, g.loc, type, 3));
  }

  void drawBias() {
    SmallVector<int64_t> shape = {b, n, h, s, t};
    for (int64_t dim = 0; dim < 3; ++dim)
      if (g.random.chance(1, 3))
        shape[dim] = 1;
    bias = g.tamed(g.like(g.floats(shape)), 4).value;
  }

  void drawDropout() {
    auto indices = [&](int64_t length) -> Value {
      RankedTensorType type = g.ints({length});
      if (g.random.chance(2, 3))
        return nn::IotaOp::create(g.b, g.loc, type, 0);
      return g.like(type).value;
    };
    dropout = 0.375;
    dropoutKeys = g.like(g.ints({b, n, h})).value;
    qIndex = indices(s);
    kIndex = indices(t);
  }

  void addGradient(nn::AttentionOp op) {
    Entry cotangent =
        g.like(cast<RankedTensorType>(op.getResult().getType()), 1e4);
    auto grad = nn::AttentionGradOp::create(
        g.b, g.loc,
        TypeRange{query.value.getType(), key.value.getType(),
                  value.value.getType()},
        cotangent.value, query.value, key.value, value.value, op.getResult(),
        op.getLse(), qPositions, kPositions, qSegments, kSegments, keyMask,
        bias, dropoutKeys, qIndex, kIndex, APFloat(scale), causal, window,
        APFloat(softcap), APFloat(dropout));
    double bound = 100 * cotangent.bound * value.bound;
    for (Value result : grad->getResults())
      g.give(result, bound, false);
  }

  Generator &g;
  Entry query, key, value;
  int64_t b = 0, s = 0, n = 0, h = 0, d = 0, t = 0, e = 0;
  double scale = 0, softcap = 0, dropout = 0;
  int64_t window = 0;
  bool causal = false;
  bool mayHide = false; ///< all keys of a query
  Value qPositions, kPositions, qSegments, kSegments, keyMask, bias;
  Value dropoutKeys, qIndex, kIndex;
};

bool attention(Generator &g) { return RandomAttention(g).add(); }

bool rotary(Generator &g) {
  Entry x = g.any(2, 5);
  if (x.rank() < 3)
    x = g.reshaped(x, 3);
  if (x.bound > 1e6)
    return false;
  SmallVector<int64_t> shape(x.shape());
  if (shape.back() % 2) {
    // Makes the row length even by concatenating the tensor with itself.
    x.value = nn::ConcatOp::create(g.b, g.loc, ValueRange{x.value, x.value},
                                   shape.size() - 1);
    shape.back() *= 2;
  }
  SmallVector<int64_t> angles = {shape[1], shape.back() / 2};
  if (g.random.chance(1, 2))
    angles.insert(angles.begin(), shape[0]);
  Entry cos = g.like(g.floats(angles), 100),
        sin = g.like(g.floats(angles), 100);
  g.give(nn::RotaryOp::create(g.b, g.loc, x.value.getType(), x.value, cos.value,
                              sin.value, g.random.chance(1, 2),
                              g.random.chance(1, 2)),
         x.bound * (cos.bound + sin.bound), x.exact && cos.exact && sin.exact);
  return true;
}

} // namespace

ArrayRef<Family> cleave::random::attentionFamilies() {
  static const Family families[] = {
      {"attention", 14, attention},
      {"rotary", 7, rotary},
  };
  return families;
}
