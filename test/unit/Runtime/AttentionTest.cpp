// Blockwise attention against naive loops in double, and its gradients
// against central differences.

#include "Helpers.h"

#include "cleave/workspace.h"
#include "cpu/attention.h"
#include "cpu/micro.h"

#include <functional>

using namespace cleave;
using namespace cleave::program;
using namespace cleave::test;

namespace {
struct Case {
  int64_t b = 1, qLen = 1, kLen = 1, n = 1, g = 1, d = 1, dv = 1;
  bool causal = false;
  int64_t queryOffset = 0, keyOffset = 0;
  MaskKind mask = MaskKind::None;
  bool positions = false;
  bool headsFirst =
      false; // memory order [b, n, g, s, d] instead of [b, s, n, g, d]
};

std::array<int64_t, 5> stridesOf(const Case &c, int64_t length, int64_t groups,
                                 int64_t width) {
  int64_t heads = c.n * groups;
  if (c.headsFirst)
    return {heads * length * width, width, groups * length * width,
            length * width, 1};
  return {length * heads * width, heads * width, groups * width, width, 1};
}

Attention describe(const Case &c, DType dtype, bool backward) {
  Attention x;
  x.backward = backward;
  x.dtype = dtype;
  x.b = c.b, x.qLen = c.qLen, x.kLen = c.kLen;
  x.n = c.n, x.g = c.g, x.d = c.d, x.dv = c.dv;
  x.q.strides = x.dq.strides = stridesOf(c, c.qLen, c.g, c.d);
  x.k.strides = x.dk.strides = stridesOf(c, c.kLen, 1, c.d);
  x.v.strides = x.dV.strides = stridesOf(c, c.kLen, 1, c.dv);
  x.o.strides = x.dO.strides = stridesOf(c, c.qLen, c.g, c.dv);
  x.lse.strides = {c.n * c.g * c.qLen, 1, c.g * c.qLen, c.qLen, 0};
  x.scale = 1 / std::sqrt(double(c.d));
  x.causal = c.causal;
  x.queryOffset = c.queryOffset, x.keyOffset = c.keyOffset;
  x.mask = c.mask;
  // Boolean: a key mask [b, k]. Additive: [heads, q, k] for all batches.
  if (c.mask == MaskKind::Boolean)
    x.maskRef.strides = {c.kLen, 0, 0, 0, 1};
  else if (c.mask == MaskKind::Additive)
    x.maskRef.strides = {0, c.kLen, c.g * c.qLen * c.kLen, c.qLen * c.kLen, 1};
  x.queryPositionStrides = {c.qLen, 1};
  x.keyPositionStrides = {c.kLen, 1};
  return x;
}

template <class T> struct Data {
  std::vector<T> q, k, v, o, lse, dO, dq, dk, dV, additive;
  std::vector<uint8_t> keep;
  std::vector<int64_t> queryPositions, keyPositions;

  explicit Data(const Case &c) {
    int64_t heads = c.n * c.g;
    q = randomVector<T>(c.b * c.qLen * heads * c.d, 1);
    k = randomVector<T>(c.b * c.kLen * c.n * c.d, 2);
    v = randomVector<T>(c.b * c.kLen * c.n * c.dv, 3);
    dO = randomVector<T>(c.b * c.qLen * heads * c.dv, 4);
    o.assign(c.b * c.qLen * heads * c.dv, T(NAN));
    lse.assign(c.b * c.qLen * heads, T(NAN));
    dq.assign(q.size(), T(NAN));
    dk.assign(k.size(), T(NAN));
    dV.assign(v.size(), T(NAN));
    additive = randomVector<T>(heads * c.qLen * c.kLen, 5);
    std::mt19937 engine(6);
    for (int64_t i = 0; i < c.b * c.kLen; ++i)
      keep.push_back(engine() % 3 != 0);
    // Positions of a sequence cut in zig-zag: not increasing.
    for (int64_t i = 0; i < c.b * c.qLen; ++i)
      queryPositions.push_back((i % c.qLen) * 7 % c.qLen);
    for (int64_t i = 0; i < c.b * c.kLen; ++i)
      keyPositions.push_back((i % c.kLen) * 5 % c.kLen);
  }
};

template <class T>
std::vector<T> runOn(const Case &c, Data<T> &data, bool backward,
                     int threads = 1) {
  Attention x =
      describe(c, std::is_same_v<T, float> ? DType::F32 : DType::F64, backward);
  std::string error;
  int64_t bytes = attentionWorkspace(x, threads, error);
  EXPECT_GE(bytes, 0) << error;
  Aligned<char> workspace(bytes);
  std::fill_n(workspace.data.get(), bytes, char(0xff)); // NaNs
  AttentionBuffers at;
  at.q = data.q.data(), at.k = data.k.data(), at.v = data.v.data();
  at.o = data.o.data(), at.lse = data.lse.data(), at.dO = data.dO.data();
  at.dq = data.dq.data(), at.dk = data.dk.data(), at.dV = data.dV.data();
  at.mask = c.mask == MaskKind::Boolean
                ? static_cast<const void *>(data.keep.data())
                : data.additive.data();
  if (c.positions) {
    at.queryPositions = data.queryPositions.data();
    at.keyPositions = data.keyPositions.data();
  }
  at.workspace = workspace.data.get();
  makeAttention(x, at, threads)();
  return data.o;
}

bool isVisible(const Case &c, const Data<double> &data, int64_t b, int64_t i,
               int64_t j) {
  if (c.mask == MaskKind::Boolean && !data.keep[b * c.kLen + j])
    return false;
  if (!c.causal)
    return true;
  int64_t qpos =
      c.positions ? data.queryPositions[b * c.qLen + i] : c.queryOffset + i;
  int64_t kpos =
      c.positions ? data.keyPositions[b * c.kLen + j] : c.keyOffset + j;
  return kpos <= qpos;
}

// Writes o and lse of `data`.
void naive(const Case &c, Data<double> &data) {
  Attention x = describe(c, DType::F64, false);
  auto at = [](const AttentionRef &ref, int64_t b, int64_t s, int64_t n,
               int64_t g, int64_t f) {
    return b * ref.strides[0] + s * ref.strides[1] + n * ref.strides[2] +
           g * ref.strides[3] + f * ref.strides[4];
  };
  for (int64_t b = 0; b < c.b; ++b)
    for (int64_t n = 0; n < c.n; ++n)
      for (int64_t g = 0; g < c.g; ++g)
        for (int64_t i = 0; i < c.qLen; ++i) {
          std::vector<double> scores(c.kLen, -INFINITY);
          double high = -INFINITY, sum = 0;
          for (int64_t j = 0; j < c.kLen; ++j) {
            if (!isVisible(c, data, b, i, j))
              continue;
            double score = 0;
            for (int64_t f = 0; f < c.d; ++f)
              score += data.q[at(x.q, b, i, n, g, f)] *
                       data.k[at(x.k, b, j, n, 0, f)];
            scores[j] = score * x.scale;
            if (c.mask == MaskKind::Additive)
              scores[j] +=
                  data.additive[((n * c.g + g) * c.qLen + i) * c.kLen + j];
            high = std::max(high, scores[j]);
          }
          for (double score : scores)
            sum += high == -INFINITY ? 0 : std::exp(score - high);
          data.lse[((b * c.n + n) * c.g + g) * c.qLen + i] =
              sum == 0 ? -INFINITY : high + std::log(sum);
          for (int64_t f = 0; f < c.dv; ++f) {
            double o = 0;
            for (int64_t j = 0; j < c.kLen && sum != 0; ++j)
              o += std::exp(scores[j] - high) / sum *
                   data.v[at(x.v, b, j, n, 0, f)];
            data.o[at(x.o, b, i, n, g, f)] = o;
          }
        }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  // Around the block sizes, with grouped heads and unequal widths.
  for (auto [q, k] : {std::pair{1, 1}, {5, 7}, {48, 96}, {49, 97}, {150, 200}})
    for (bool causal : {false, true})
      for (bool headsFirst : {false, true}) {
        Case c{2, q, k, 2, 3, 20, 24, causal};
        c.queryOffset = k - q; // the last query sees every key
        c.headsFirst = headsFirst;
        all.push_back(c);
      }
  Case c{2, 60, 130, 2, 2, 16, 16, true};
  c.positions = true;
  all.push_back(c);
  c.mask = MaskKind::Boolean;
  all.push_back(c);
  c.positions = false;
  c.mask = MaskKind::Additive;
  all.push_back(c);
  // Keys from position 100 on: the first queries see nothing at all.
  Case late{1, 120, 60, 1, 2, 8, 8, true};
  late.keyOffset = 100;
  all.push_back(late);
  return all;
}

TEST(Attention, ForwardMatchesLoops) {
  for (const Case &c : cases()) {
    SCOPED_TRACE(testing::Message() << c.qLen << " queries, " << c.kLen
                                    << " keys, causal " << c.causal);
    Data<double> expected(c), wide(c);
    naive(c, expected);
    Data<float> narrow(c);
    for (int threads : {1, 3}) {
      runOn(c, wide, false, threads);
      EXPECT_LT(relativeError(wide.o, expected.o), 1e-13);
      for (size_t i = 0; i < wide.lse.size(); ++i)
        if (std::isinf(expected.lse[i]))
          EXPECT_EQ(wide.lse[i], expected.lse[i]);
        else
          EXPECT_NEAR(wide.lse[i], expected.lse[i], 1e-12);
      runOn(c, narrow, false, threads);
      EXPECT_LT(relativeError(narrow.o, expected.o), 3e-6);
    }
  }
}

// d loss / d x with loss = sum(o * dO), by central differences.
double difference(const Case &c, Data<double> &data, double &x) {
  constexpr double step = 1e-5;
  auto loss = [&] {
    naive(c, data);
    double sum = 0;
    for (size_t i = 0; i < data.o.size(); ++i)
      sum += data.o[i] * data.dO[i];
    return sum;
  };
  double saved = x;
  x = saved + step;
  double high = loss();
  x = saved - step;
  double low = loss();
  x = saved;
  return (high - low) / (2 * step);
}

TEST(Attention, BackwardMatchesDifferences) {
  for (const Case &c : cases()) {
    // The naive loops are slow; the larger cases run no other code.
    if (c.qLen > 130 || (c.qLen == 49 && c.headsFirst))
      continue;
    SCOPED_TRACE(testing::Message() << c.qLen << " queries, " << c.kLen
                                    << " keys, causal " << c.causal);
    Data<double> data(c);
    runOn(c, data, false);
    runOn(c, data, true, 2);
    Data<double> probe(c);
    std::mt19937 engine(9);
    for (auto [values, gradient] :
         {std::pair{&probe.q, &data.dq}, std::pair{&probe.k, &data.dk},
          std::pair{&probe.v, &data.dV}}) {
      for (double g : *gradient)
        ASSERT_TRUE(std::isfinite(g));
      for (int sample = 0; sample < 3; ++sample) {
        size_t i = engine() % values->size();
        EXPECT_NEAR((*gradient)[i], difference(c, probe, (*values)[i]), 2e-8);
      }
    }
    // The float version agrees with the double one.
    Data<float> narrow(c);
    runOn(c, narrow, false);
    runOn(c, narrow, true);
    EXPECT_LT(relativeError(narrow.dq, data.dq), 1e-5);
    EXPECT_LT(relativeError(narrow.dk, data.dk), 1e-5);
    EXPECT_LT(relativeError(narrow.dV, data.dV), 1e-5);
  }
}

TEST(Attention, ThreadsDoNotChangeTheResult) {
  Case c{2, 100, 100, 3, 2, 16, 16, true};
  Data<float> one(c), four(c);
  runOn(c, one, false, 1);
  runOn(c, four, false, 4);
  EXPECT_EQ(one.o, four.o);
  runOn(c, one, true, 1);
  runOn(c, four, true, 4);
  EXPECT_EQ(one.dq, four.dq);
  EXPECT_EQ(one.dk, four.dk);
  EXPECT_EQ(one.dV, four.dV);
}

TEST(Attention, WorkspaceGrowsLinearlyInTheSequence) {
  auto bytes = [](int64_t length, bool backward) {
    Case c{1, length, length, 2, 4, 16, 16, true};
    std::string error;
    return attentionWorkspace(describe(c, DType::F32, backward), 1, error);
  };
  EXPECT_EQ(bytes(256, false), bytes(4096, false));
  EXPECT_EQ(bytes(4096, true) - bytes(1024, true), 3072 * 2 * 4 * 4);
}

TEST(Attention, RefusesOtherTypes) {
  std::string error;
  Case c;
  EXPECT_EQ(attentionWorkspace(describe(c, DType::BF16, false), 1, error), -1);
  EXPECT_NE(error.find("bf16"), std::string::npos) << error;
}
} // namespace
