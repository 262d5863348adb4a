// Builds cuDNN graphs that compute attention.

#include "dnn_attention.h"

#include <algorithm>
#include <array>

using namespace cleave;
using namespace cleave::cuda;
using program::Attention;
using program::AttentionRef;
using program::DType;

namespace {
// The oldest version of cuDNN with which the graphs of this file were tested.
constexpr size_t leastVersion = 91900;
constexpr cudnnDataType_t bf16 = CUDNN_DATA_BFLOAT16, f32 = CUDNN_DATA_FLOAT;
constexpr cudnnDataType_t i32 = CUDNN_DATA_INT32, flag = CUDNN_DATA_BOOLEAN;

// Converts the strides of an array [batch, position, n, g, feature] to a cuDNN
// tensor [batch, head, position, feature], with the heads [n, g] in one
// dimension.
DnnShape shapeOf(const AttentionRef &ref, int64_t b, int64_t length, int64_t n,
                 int64_t g, int64_t width, const char *name) {
  auto refuse = [&](const char *why) {
    throw DnnRefusal(std::string(name) + " " + why);
  };
  const auto &strides = ref.strides;
  if (n > 1 && g > 1 && strides[2] != g * strides[3])
    refuse("has heads at no common stride");
  if (width > 1 && strides[4] != 1)
    refuse("has features that are not contiguous");
  DnnShape out{{b, n * g, length, width},
               {strides[0], g > 1 ? strides[3] : strides[2], strides[1], 1}};
  int64_t span = width;
  for (int i : {2, 1, 0}) {
    // The stride of a dimension of size 1 is never used, so it may be changed.
    if (out.dims[i] == 1)
      out.strides[i] = span;
    if (out.strides[i] <= 0 || out.strides[i] % 8)
      refuse("has strides that are no multiples of 8");
    span = std::max(span, out.dims[i] * out.strides[i]);
  }
  return out;
}

// Returns the shape of arrays with one number per query, such as lse: [batch,
// head, query, 1]. cuDNN supports only dense arrays of this shape.
DnnShape rowsOf(const Attention &x) {
  return DnnShape::dense({x.b, x.n * x.g, x.qLen, 1});
}

void checkLse(const Attention &x) {
  std::array<int64_t, 4> dims{x.b, x.qLen, x.n, x.g};
  std::array<int64_t, 4> dense{x.n * x.g * x.qLen, 1, x.g * x.qLen, x.qLen};
  for (int i = 0; i < 4; ++i)
    if (dims[i] > 1 && x.lse.strides[i] != dense[i])
      throw DnnRefusal("lse is not [batch, head, query] densely");
}

class Builder {
public:
  Builder(DnnGraph &graph, const Attention &x,
          const AttentionDiagonal &diagonal)
      : graph(graph), x(x), diagonal(diagonal), heads(x.n * x.g),
        scores(DnnShape::dense({x.b, heads, x.qLen, x.kLen})),
        scale(graph.scalar(dnnScale, f32, 4)) {}

  void forward() {
    Tensor lse = graph.tensor(dnnLse, f32, rowsOf(x));
    Tensor o = graph.tensor(dnnO, bf16, queries(x.o, x.dv, "o"));
    Tensor score = masked(scaled(products()));

    Tensor most = rows();
    graph.reduce(CUDNN_REDUCE_TENSOR_MAX, score, most);
    Tensor below = pairs();
    graph.pointwise(CUDNN_POINTWISE_SUB, score, most, below);
    Tensor power = pairs();
    graph.pointwise(CUDNN_POINTWISE_EXP, below, power);
    Tensor sum = rows();
    graph.reduce(CUDNN_REDUCE_TENSOR_ADD, power, sum);
    Tensor log = rows();
    graph.pointwise(CUDNN_POINTWISE_LOG, sum, log);
    graph.pointwise(CUDNN_POINTWISE_ADD, most, log, lse);
    Tensor weight = graph.between(bf16, scores);
    graph.pointwise(CUDNN_POINTWISE_DIV, power, sum, weight);

    Tensor v = graph.tensor(dnnV, bf16, keys(x.v, x.dv, "v"));
    graph.matmul(weight, v, o);
  }

  void backward() {
    Tensor o = graph.tensor(dnnO, bf16, queries(x.o, x.dv, "o"));
    Tensor dO = graph.tensor(dnnDO, bf16, queries(x.dO, x.dv, "do"));
    Tensor lse = graph.tensor(dnnLse, f32, rowsOf(x));
    Tensor one = graph.scalar(dnnOne, f32, 4);

    // delta = sum(dO * o) for each query.
    Tensor product =
        graph.between(f32, DnnShape::dense({x.b, heads, x.qLen, x.dv}));
    graph.pointwise(CUDNN_POINTWISE_MUL, dO, o, product);
    Tensor sum = rows();
    graph.reduce(CUDNN_REDUCE_TENSOR_ADD, product, sum);
    Tensor delta = graph.tensor(dnnSums, f32, rowsOf(x));
    graph.pointwise(CUDNN_POINTWISE_MUL, sum, one, delta);

    // Recompute the softmax weights, and compute dv.
    Tensor below = pairs();
    Tensor score = scaled(products());
    graph.pointwise(CUDNN_POINTWISE_SUB, score, lse, below);
    Tensor weight = pairs();
    graph.pointwise(CUDNN_POINTWISE_EXP, masked(below), weight);
    toKeys(weight, dO, x.dv, dnnDv, keys(x.dV, x.dv, "dv"));

    // dScore = scale * weight * (dO v^T - delta). It gives dk and dq.
    Tensor vTurned = graph.tensor(dnnV, bf16, keys(x.v, x.dv, "v").turned());
    Tensor dWeight = pairs();
    graph.matmul(dO, vTurned, dWeight);
    Tensor centred = pairs();
    graph.pointwise(CUDNN_POINTWISE_SUB, dWeight, delta, centred);
    Tensor slope = pairs();
    graph.pointwise(CUDNN_POINTWISE_MUL, centred, weight, slope);
    Tensor dScore = pairs();
    graph.pointwise(CUDNN_POINTWISE_MUL, slope, scale, dScore);
    toKeys(dScore, q, x.d, dnnDk, keys(x.dk, x.d, "dk"));

    Tensor kAgain = graph.between(bf16, keys(x.k, x.d, "k"));
    graph.reshape(kTurned, kAgain);
    graph.matmul(dScore, kAgain,
                 graph.tensor(dnnDq, bf16, queries(x.dq, x.d, "dq")));
  }

private:
  using Tensor = DnnGraph::Tensor;

  DnnShape queries(const AttentionRef &ref, int64_t width, const char *name) {
    return shapeOf(ref, x.b, x.qLen, x.n, x.g, width, name);
  }
  DnnShape keys(const AttentionRef &ref, int64_t width, const char *name) {
    return shapeOf(ref, x.b, x.kLen, x.n, 1, width, name);
  }
  Tensor pairs() { return graph.between(f32, scores); }
  Tensor rows() { return graph.between(f32, rowsOf(x)); }

  Tensor products() {
    q = graph.tensor(dnnQ, bf16, queries(x.q, x.d, "q"));
    kTurned = graph.tensor(dnnK, bf16, keys(x.k, x.d, "k").turned());
    Tensor out = pairs();
    graph.matmul(q, kTurned, out);
    return out;
  }

  Tensor scaled(Tensor score) {
    Tensor out = pairs();
    graph.pointwise(CUDNN_POINTWISE_MUL, score, scale, out);
    return out;
  }

  // Returns the scores with those of masked keys replaced by `hidden` (-inf).
  Tensor masked(Tensor score) {
    if (!diagonal.isCausal)
      return score;
    Tensor hidden = graph.scalar(dnnHidden, f32, 4);
    auto hide = [&](Tensor where) {
      Tensor out = pairs();
      graph.select(where, score, hidden, out);
      score = out;
    };
    auto indexOf = [&](int64_t axis) {
      Tensor out = graph.between(i32, scores);
      graph.index(axis, score, out);
      return out;
    };
    Tensor row = indexOf(2), column = indexOf(3);
    if (diagonal.shift) {
      Tensor moved = graph.between(i32, scores);
      graph.pointwise(CUDNN_POINTWISE_ADD, row, graph.scalar(dnnShift, i32, 4),
                      moved, i32);
      row = moved;
    }
    Tensor seen = graph.between(flag, scores);
    graph.pointwise(CUDNN_POINTWISE_CMP_GE, row, column, seen, flag);
    hide(seen);
    if (!diagonal.window)
      return score;
    row = indexOf(2), column = indexOf(3);
    Tensor end = pairs();
    graph.pointwise(CUDNN_POINTWISE_ADD, column,
                    graph.scalar(dnnWindow, f32, 4), end);
    Tensor near = graph.between(flag, scores);
    graph.pointwise(CUDNN_POINTWISE_CMP_GT, end, row, near, flag);
    hide(near);
    return score;
  }

  // Computes dk or dv: the transpose of `of` times `by`, summed over the query
  // heads that share a KV head. For dk, `of` is the gradient of the scores, and
  // `by` is q. For dv, `of` is the softmax weights, and `by` is dO.
  void toKeys(Tensor of, Tensor by, int64_t width, int64_t id,
              const DnnShape &shape) {
    DnnShape turned = scores.turned();
    Tensor ofTurned = graph.between(bf16, turned);
    graph.reshape(of, ofTurned);
    Tensor out = graph.tensor(id, bf16, shape);
    if (x.g == 1) {
      graph.matmul(ofTurned, by, out);
      return;
    }
    Tensor each =
        graph.between(bf16, DnnShape::dense({x.b, heads, x.kLen, width}));
    graph.matmul(ofTurned, by, each);
    graph.reduce(CUDNN_REDUCE_TENSOR_ADD, each, out);
  }

  DnnGraph &graph;
  const Attention &x;
  const AttentionDiagonal diagonal;
  const int64_t heads;
  const DnnShape scores;
  const Tensor scale;
  Tensor q = nullptr, kTurned = nullptr;
};
} // namespace

void cuda::buildDnnAttention(DnnGraph &graph, const Attention &x,
                             const AttentionDiagonal &diagonal) {
  checkLse(x);
  Builder builder(graph, x, diagonal);
  x.backward ? builder.backward() : builder.forward();
}

void cuda::checkDnnTarget(const DnnTarget &target) {
  size_t version = target.api.cudnnGetVersion();
  if (version < leastVersion)
    throw DnnRefusal("cuDNN " + std::to_string(version) + " is older than " +
                     std::to_string(leastVersion));
  if (target.capability < 80 || target.capability > 103)
    throw DnnRefusal("cuDNN's engines for sm_" +
                     std::to_string(target.capability) + " were never tried");
}

std::optional<DnnEngine> cuda::dnnEngineFor(const DnnTarget &target,
                                            const Attention &x) {
  if (!x.backward || target.capability < 100)
    return std::nullopt;
  size_t version = target.api.cudnnGetVersion();
  // On sm_100 and newer only one engine, with the settings given here, sums in
  // a fixed order.
  if (version < 92300)
    return DnnEngine{
        5, {{CUDNN_KNOB_TYPE_KERNEL_CFG, 31}, {CUDNN_KNOB_TYPE_STAGES, 2}}};
  return DnnEngine{5,
                   {{CUDNN_KNOB_TYPE_TILE_M, 3},
                    {CUDNN_KNOB_TYPE_TILE_N, 2},
                    {CUDNN_KNOB_TYPE_KERNEL_CFG, 2},
                    {CUDNN_KNOB_TYPE_STREAM_K, 0},
                    {CUDNN_KNOB_TYPE_TILE_CGA_M, 0},
                    {CUDNN_KNOB_TYPE_STAGES, 2}}};
}
