// Attention with positions, masks and biases, its gradient, and rotary
// positions.

#include "Generator.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::random;

namespace {

bool attention(Generator &g) {
  Entry query = g.any(2, 5);
  query = g.tamed(g.reshaped(query, 5), 10);
  int64_t b = query.shape()[0], s = query.shape()[1], n = query.shape()[2],
          h = query.shape()[3], d = query.shape()[4];
  int64_t t = g.random.chance(1, 2) ? s : g.size(),
          e = g.random.chance(1, 2) ? d : g.size();
  if (b * t * n * std::max(d, e) > g.kMaxElements ||
      b * s * n * h * std::max(t, e) > 2 * g.kMaxElements)
    return false;
  Entry key = g.tamed(g.like(g.floats({b, t, n, d})), 10);
  Entry value = g.like(g.floats({b, t, n, e}), 1e4);
  // Scores are bounded so that their exponentials are, too.
  double scale = std::min(0.5, 10 / (d * query.bound * key.bound));
  bool causal = g.random.chance(1, 2), mayHide = causal;
  Value qPositions, kPositions, qSegments, kSegments, keyMask, bias;
  Value dropoutKeys, qIndex, kIndex;
  int64_t window = g.random.chance(1, 4) ? g.size() : 0;
  double softcap = g.random.chance(1, 4) ? 2 : 0;
  mayHide |= window != 0;
  bool perSample = g.random.chance(1, 3);
  if (g.random.chance(1, 2)) {
    auto positions = [&](int64_t length) -> Value {
      RankedTensorType type =
          perSample ? g.ints({b, length}) : g.ints({length});
      if (g.random.chance(1, 2))
        return nn::IotaOp::create(g.b, g.loc, type, perSample ? 1 : 0);
      return g.like(type).value;
    };
    qPositions = positions(s);
    kPositions = positions(t);
  }
  if (g.random.chance(1, 4)) {
    // Segments (packed documents) of a few tokens each.
    auto segments = [&](int64_t length) -> Value {
      RankedTensorType type = g.ints({length});
      Value index = nn::IotaOp::create(g.b, g.loc, type, 0);
      return arith::DivSIOp::create(g.b, g.loc, index,
                                    nn::createSplat(g.b, g.loc, type, 3));
    };
    qSegments = segments(s);
    kSegments = segments(t);
    mayHide = true;
  }
  if (g.random.chance(1, 3)) {
    keyMask = g.argument(g.bools({b, t})).value;
    mayHide = true;
  }
  if (g.random.chance(1, 3)) {
    SmallVector<int64_t> shape = {b, n, h, s, t};
    for (int64_t dim = 0; dim < 3; ++dim)
      if (g.random.chance(1, 3))
        shape[dim] = 1;
    bias = g.tamed(g.like(g.floats(shape)), 4).value;
  }
  double dropout = 0;
  if (g.random.chance(1, 3)) {
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
  auto output = g.floats({b, s, n, h, e}), lse = g.floats({b, n, h, s});
  auto op = nn::AttentionOp::create(
      g.b, g.loc, TypeRange{output, lse}, query.value, key.value, value.value,
      qPositions, kPositions, qSegments, kSegments, keyMask, bias, dropoutKeys,
      qIndex, kIndex, APFloat(scale), causal, window, APFloat(softcap),
      APFloat(dropout));
  g.give(op.getResult(), value.bound / (1 - dropout), false);
  if (g.random.chance(2, 3)) {
    Entry cotangent = g.like(output, 1e4);
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
  } else if (!mayHide) {
    g.give(op.getLse(), 100, false);
  }
  return true;
}

bool rotary(Generator &g) {
  Entry x = g.any(2, 5);
  if (x.rank() < 3)
    x = g.reshaped(x, 3);
  if (x.bound > 1e6)
    return false;
  SmallVector<int64_t> shape(x.shape());
  if (shape.back() % 2) {
    // Rotary needs rows of even length: the tensor is concatenated with itself.
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
