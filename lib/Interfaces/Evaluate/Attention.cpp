// Reference semantics of attention and rotary positions.

#include "Model.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace cleave;
using namespace cleave::evaluate;

static void rotary(nn::RotaryOp op, Operands in, Results out) {
  ArrayRef<int64_t> shape = in[0]->shape();
  int64_t d = shape.back(), half = d / 2;
  bool perSample = in[1]->rank() == 3;
  double sign = op.getInverse() ? -1 : 1;
  forEachIndex(shape.drop_back(), [&](ArrayRef<int64_t> index, int64_t row) {
    int64_t position = perSample ? index[0] * shape[1] + index[1] : index[1];
    for (int64_t i = 0; i < half; ++i) {
      int64_t first = row * d + (op.getInterleaved() ? 2 * i : i);
      int64_t second = first + (op.getInterleaved() ? 1 : half);
      double cos = in[1]->floats[position * half + i];
      double sin = sign * in[2]->floats[position * half + i];
      double a = in[0]->floats[first], b = in[0]->floats[second];
      out[0].floats[first] = a * cos - b * sin;
      out[0].floats[second] = b * cos + a * sin;
    }
  });
}

namespace {

/// The sizes, operands and masks of one attention. Its loops run over batch, KV
/// heads, query heads per KV head, and queries: (b, n, g, s).
struct Attention {
  const Tensor *query, *key, *value;
  const Tensor *qPositions = nullptr, *kPositions = nullptr;
  const Tensor *qSegments = nullptr, *kSegments = nullptr;
  const Tensor *keyMask = nullptr, *bias = nullptr;
  const Tensor *dropoutKeys = nullptr, *qIndex = nullptr, *kIndex = nullptr;
  double scale;
  bool causal;
  int64_t window;
  double softcap, dropout;
  int64_t b, s, n, g, d, t, e;

  template <typename Op>
  Attention(Op op, Operands in, unsigned first)
      : query(in[first]), key(in[first + 1]), value(in[first + 2]),
        scale(op.getScale().convertToDouble()), causal(op.getCausal()),
        window(int64_t(op.getWindow())),
        softcap(op.getSoftcap().convertToDouble()),
        dropout(op.getDropout().convertToDouble()) {
    // Optional operands come last, in the order of the operation's definition.
    unsigned next = first + 3;
    if constexpr (std::is_same_v<Op, nn::AttentionGradOp>)
      next += 2; // output, lse
    if (op.getQPositions()) {
      qPositions = in[next++];
      kPositions = in[next++];
    }
    if (op.getQSegments()) {
      qSegments = in[next++];
      kSegments = in[next++];
    }
    if (op.getKeyMask())
      keyMask = in[next++];
    if (op.getBias())
      bias = in[next++];
    if (op.getDropoutKeys()) {
      dropoutKeys = in[next++];
      qIndex = in[next++];
      kIndex = in[next++];
    }
    ArrayRef<int64_t> q = query->shape();
    b = q[0], s = q[1], n = q[2], g = q[3], d = q[4];
    t = key->shape()[1], e = value->shape()[3];
  }

  int64_t queryAt(int64_t ib, int64_t i, int64_t in, int64_t ig,
                  int64_t width) const {
    return (((ib * s + i) * n + in) * g + ig) * width;
  }
  int64_t keyAt(int64_t ib, int64_t j, int64_t in, int64_t width) const {
    return ((ib * t + j) * n + in) * width;
  }
  /// Returns element i of an operand of positions or segments; if the operand
  /// is absent, the index i itself.
  static int64_t entry(const Tensor *positions, int64_t ib, int64_t i) {
    if (!positions)
      return i;
    return positions
        ->ints[positions->rank() == 2 ? ib * positions->shape()[1] + i : i];
  }

  /// Returns the masked score of query i and key j; -inf if the key is masked.
  /// `slope` is set to the derivative of the score with respect to the dot
  /// product.
  double score(int64_t ib, int64_t in, int64_t ig, int64_t i, int64_t j,
               double *slope = nullptr) const {
    constexpr double hidden = -std::numeric_limits<double>::infinity();
    int64_t ahead = entry(kPositions, ib, j) - entry(qPositions, ib, i);
    if ((causal && ahead > 0) || (window && std::abs(ahead) >= window))
      return hidden;
    if (qSegments && entry(qSegments, ib, i) != entry(kSegments, ib, j))
      return hidden;
    if (keyMask && !keyMask->ints[ib * t + j])
      return hidden;
    double sum = 0;
    const double *q = &query->floats[queryAt(ib, i, in, ig, d)];
    const double *k = &key->floats[keyAt(ib, j, in, d)];
    for (int64_t x = 0; x < d; ++x)
      sum += q[x] * k[x];
    sum *= scale;
    if (softcap)
      sum = softcap * std::tanh(sum / softcap);
    if (slope)
      *slope = softcap ? scale * (1 - sum / softcap * (sum / softcap)) : scale;
    if (bias) {
      ArrayRef<int64_t> shape = bias->shape();
      Index at = {shape[0] == 1 ? 0 : ib, shape[1] == 1 ? 0 : in,
                  shape[2] == 1 ? 0 : ig, i, j};
      sum += bias->floats[flatten(shape, at)];
    }
    return sum;
  }

  /// Returns the factor by which dropout multiplies the weight of key j for
  /// query i.
  double kept(int64_t ib, int64_t in, int64_t ig, int64_t i, int64_t j) const {
    if (!dropoutKeys)
      return 1;
    auto at = uint64_t(kIndex->ints[j]);
    std::array<uint32_t, 4> words =
        philox(dropoutKeys->ints[(ib * n + in) * g + ig],
               {uint32_t(at / 4), uint32_t(qIndex->ints[i]), 0, 0});
    return words[at % 4] / 4294967296.0 >= dropout ? 1 / (1 - dropout) : 0;
  }

  template <typename Visit> void forEachQuery(Visit visit) const {
    for (int64_t ib = 0; ib < b; ++ib)
      for (int64_t in = 0; in < n; ++in)
        for (int64_t ig = 0; ig < g; ++ig)
          for (int64_t i = 0; i < s; ++i)
            visit(ib, in, ig, i, ((ib * n + in) * g + ig) * s + i);
  }
};

} // namespace

static void attention(nn::AttentionOp op, Operands in, Results out) {
  Attention a(op, in, 0);
  a.forEachQuery([&](int64_t b, int64_t n, int64_t g, int64_t i, int64_t row) {
    std::vector<double> p(a.t);
    double max = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t j = 0; j < a.t; ++j)
      max = std::max(max, p[j] = a.score(b, n, g, i, j));
    double *o = &out[0].floats[a.queryAt(b, i, n, g, a.e)];
    if (std::isinf(max) && max < 0) { // all keys are masked
      out[1].floats[row] = max;
      return;
    }
    for (int64_t j = 0; j < a.t; ++j)
      sum += p[j] = std::exp(p[j] - max);
    for (int64_t j = 0; j < a.t; ++j) {
      double weight = p[j] / sum * a.kept(b, n, g, i, j);
      for (int64_t x = 0; x < a.e; ++x)
        o[x] += weight * a.value->floats[a.keyAt(b, j, n, a.e) + x];
    }
    out[1].floats[row] = max + std::log(sum);
  });
}

static void attentionGrad(nn::AttentionGradOp op, Operands in, Results out) {
  Attention a(op, in, 1);
  const std::vector<double> &cotangent = in[0]->floats, &output = in[4]->floats,
                            &lse = in[5]->floats;
  a.forEachQuery([&](int64_t b, int64_t n, int64_t g, int64_t i, int64_t row) {
    if (std::isinf(lse[row]) && lse[row] < 0)
      return;
    int64_t qAt = a.queryAt(b, i, n, g, a.d), oAt = a.queryAt(b, i, n, g, a.e);
    double delta = 0;
    for (int64_t x = 0; x < a.e; ++x)
      delta += cotangent[oAt + x] * output[oAt + x];
    for (int64_t j = 0; j < a.t; ++j) {
      double slope = 0, score = a.score(b, n, g, i, j, &slope);
      if (std::isinf(score) && score < 0) // masked keys contribute nothing
        continue;
      double p = std::exp(score - lse[row]);
      int64_t kAt = a.keyAt(b, j, n, a.d), vAt = a.keyAt(b, j, n, a.e);
      double dp = 0, kept = a.kept(b, n, g, i, j);
      for (int64_t x = 0; x < a.e; ++x) {
        dp += cotangent[oAt + x] * a.value->floats[vAt + x];
        out[2].floats[vAt + x] += p * kept * cotangent[oAt + x];
      }
      double ds = p * (dp * kept - delta) * slope;
      for (int64_t x = 0; x < a.d; ++x) {
        out[0].floats[qAt + x] += ds * a.key->floats[kAt + x];
        out[1].floats[kAt + x] += ds * a.query->floats[qAt + x];
      }
    }
  });
}

void cleave::evaluate::attachAttention(MLIRContext *c) {
  attach<nn::RotaryOp, rotary>(c);
  attach<nn::AttentionOp, attention>(c);
  attach<nn::AttentionGradOp, attentionGrad>(c);
}
