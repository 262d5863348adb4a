// Compares blockwise attention with naive loops in double, and its gradients
// with central differences.

#include "../TriesAll.h"
#include "AttentionCase.h"

#include "cleave/philox.h"

#include <algorithm>
#include <functional>

using namespace cleave;
using namespace cleave::program;
using namespace cleave::test;

namespace {
bool isVisible(const AttentionCase &c, const AttentionData<double> &data,
               int64_t b, int64_t i, int64_t j) {
  if (data.isHidden(c, b * c.kLen + j))
    return false;
  if (c.segments &&
      data.querySegments[i * c.b + b] != data.keySegments[j * c.b + b])
    return false;
  int64_t qpos = c.queryOffset + i, kpos = c.keyOffset + j;
  int64_t sample = c.positions == AttentionCase::ZigZag ? 0 : b;
  if (c.positions != AttentionCase::Default) {
    qpos = data.queryPositions[sample * c.qLen + i];
    kpos = data.keyPositions[sample * c.kLen + j];
  }
  if (c.window && std::abs(qpos - kpos) >= c.window)
    return false;
  return !c.causal || kpos <= qpos;
}

// Returns the factor by which dropout multiplies a weight.
double kept(const AttentionCase &c, const AttentionData<double> &data,
            int64_t b, int64_t n, int64_t g, int64_t i, int64_t j) {
  if (c.dropout == 0)
    return 1;
  int64_t key = data.keyIndices[j];
  philox::Block block = philox::blockOf(
      uint64_t(data.dropoutKeys[(n * c.g + g) * c.b + b]),
      {{uint32_t(key / 4), uint32_t(data.queryIndices[i]), 0, 0}});
  bool isKept = block.words[key % 4] / 4294967296.0 >= c.dropout;
  return isKept ? 1 / (1 - c.dropout) : 0;
}

// Computes o and lse of `data` by naive loops.
void naive(const AttentionCase &c, AttentionData<double> &data) {
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
            if (c.softcap != 0)
              scores[j] = c.softcap * std::tanh(scores[j] / c.softcap);
            if (c.bias)
              scores[j] += data.bias[((n * c.g + g) * c.qLen + i) * c.kLen + j];
            high = std::max(high, scores[j]);
          }
          for (double score : scores)
            sum += high == -INFINITY ? 0 : std::exp(score - high);
          data.lse[((b * c.n + n) * c.g + g) * c.qLen + i] =
              sum == 0 ? -INFINITY : high + std::log(sum);
          for (int64_t f = 0; f < c.dv; ++f) {
            double o = 0;
            for (int64_t j = 0; j < c.kLen; ++j)
              o += scores[j] == -INFINITY ? 0
                                          : std::exp(scores[j] - high) / sum *
                                                kept(c, data, b, n, g, i, j) *
                                                data.v[at(x.v, b, j, n, 0, f)];
            data.o[at(x.o, b, i, n, g, f)] = o;
          }
        }
}

std::vector<AttentionCase> cases() {
  std::vector<AttentionCase> all;
  // Lengths around the block sizes, with grouped heads and different head sizes
  // of queries and values.
  for (auto [q, k] : {std::pair{1, 1}, {5, 7}, {48, 96}, {49, 97}, {150, 200}})
    for (bool causal : {false, true})
      for (bool headsFirst : {false, true}) {
        AttentionCase c{2, q, k, 2, 3, 20, 24, causal};
        c.queryOffset = k - q; // the last query sees every key
        c.headsFirst = headsFirst;
        all.push_back(c);
      }
  // Every combination of options that can hide a key, with bias and soft cap.
  // Some queries see no key.
  for (auto positions :
       {AttentionCase::Default, AttentionCase::Shuffled, AttentionCase::ZigZag})
    for (int bits = 0; bits < 16; ++bits) {
      AttentionCase c{2, 120, 130, 2, 1, 16, 12, (bits & 1) != 0};
      c.positions = positions;
      c.window = bits & 2 ? 40 : 0;
      c.segments = (bits & 4) != 0;
      c.keyMask = (bits & 8) != 0;
      c.bias = bits % 3 == 0;
      c.softcap = bits % 2 ? 0.5 : 0; // scores reach 2
      all.push_back(c);
    }
  // Dropout in combination with each other option.
  for (auto positions :
       {AttentionCase::Default, AttentionCase::Shuffled, AttentionCase::ZigZag})
    for (int bits = 0; bits < 4; ++bits) {
      AttentionCase c{2, 70, 115, 2, 2, 16, 12, (bits & 1) != 0};
      c.positions = positions;
      c.keyMask = c.headsFirst = (bits & 2) != 0;
      c.window = bits == 3 ? 50 : 0;
      c.softcap = bits == 1 ? 0.5 : 0;
      c.dropout = bits == 2 ? 0.7 : 0.25;
      all.push_back(c);
    }
  // Keys have positions from 100 on, so the first queries see no key.
  AttentionCase late{1, 120, 60, 1, 2, 8, 8, true};
  late.keyOffset = 100;
  all.push_back(late);
  return all;
}

TEST(Attention, ForwardMatchesLoops) {
  for (const AttentionCase &c : cases()) {
    SCOPED_TRACE(c.text());
    AttentionData<double> expected(c), wide(c);
    naive(c, expected);
    AttentionData<float> narrow(c);
    spoilHidden(c, wide);
    spoilHidden(c, narrow);
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

// All scores are equal and all values are one, so that the results count the
// weights that dropout kept.
TEST(Attention, DropsAShareOfWeights) {
  for (double p : {0.1, 0.5}) {
    AttentionCase c{2, 40, 1000, 2, 2, 4, 1};
    c.dropout = p;
    AttentionData<double> data(c);
    std::fill(data.q.begin(), data.q.end(), 0);
    std::fill(data.v.begin(), data.v.end(), 1);
    runOn(c, data, false);
    double mean = 0;
    for (double o : data.o)
      mean += o / double(data.o.size());
    double weights = 320 * 1000; // six deviations
    EXPECT_NEAR(mean, 1, 6 * std::sqrt(p / (1 - p) / weights));
    // Dropout differs between rows, heads and samples.
    std::sort(data.o.begin(), data.o.end());
    double spread = data.o.back() - data.o.front();
    EXPECT_GT(spread, 2 * std::sqrt(p / (1 - p) / 1000));
    EXPECT_LT(spread, 12 * std::sqrt(p / (1 - p) / 1000));
  }
}

// Returns d loss / d x for loss = sum(o * dO), by central differences.
double difference(const AttentionCase &c, AttentionData<double> &data,
                  double &x) {
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

void expectZeroRows(const AttentionCase &c, const AttentionData<double> &data) {
  Attention x = describe(c, DType::F64, true);
  auto isZero = [&](const std::vector<double> &values, const AttentionRef &ref,
                    int64_t b, int64_t s, int64_t width) {
    for (int64_t n = 0; n < c.n; ++n)
      for (int64_t f = 0; f < width; ++f)
        if (values[b * ref.strides[0] + s * ref.strides[1] +
                   n * ref.strides[2] + f * ref.strides[4]] != 0)
          return false;
    return true;
  };
  for (int64_t b = 0; b < c.b; ++b) {
    std::vector<bool> sees(c.qLen), seen(c.kLen);
    for (int64_t i = 0; i < c.qLen; ++i)
      for (int64_t j = 0; j < c.kLen; ++j)
        if (isVisible(c, data, b, i, j))
          sees[i] = seen[j] = true;
    for (int64_t i = 0; i < c.qLen; ++i)
      if (!sees[i]) {
        EXPECT_TRUE(isZero(data.dq, x.dq, b, i, c.d)) << "query " << i;
        EXPECT_TRUE(isZero(data.o, x.o, b, i, c.dv)) << "query " << i;
        EXPECT_EQ(data.lse[b * c.n * c.g * c.qLen + i], -INFINITY);
      }
    for (int64_t j = 0; j < c.kLen; ++j)
      if (!seen[j]) {
        EXPECT_TRUE(isZero(data.dk, x.dk, b, j, c.d)) << "key " << j;
        EXPECT_TRUE(isZero(data.dV, x.dV, b, j, c.dv)) << "key " << j;
      }
  }
}

TEST(Attention, BackwardMatchesDifferences) {
  for (const AttentionCase &c : cases()) {
    // The naive loops are slow, and the larger cases run the same code as the
    // smaller ones.
    if (c.qLen > 130 || (c.qLen == 49 && c.headsFirst))
      continue;
    SCOPED_TRACE(c.text());
    AttentionData<double> data(c);
    spoilHidden(c, data);
    runOn(c, data, false);
    runOn(c, data, true, 2);
    AttentionData<double> probe(c);
    std::mt19937 engine(9);
    for (auto [values, gradient] :
         {std::pair{&probe.q, &data.dq}, std::pair{&probe.k, &data.dk},
          std::pair{&probe.v, &data.dV}}) {
      for (double g : *gradient)
        ASSERT_TRUE(std::isfinite(g));
      for (int sample = 0; sample < (test::triesAll() ? 3 : 1); ++sample) {
        size_t i = engine() % values->size();
        EXPECT_NEAR((*gradient)[i], difference(c, probe, (*values)[i]), 2e-8);
      }
    }
    // The gradients of queries that see no key, and of keys that no query sees,
    // are zero.
    expectZeroRows(c, data);
    // The results in f32 agree with those in f64.
    AttentionData<float> narrow(c);
    spoilHidden(c, narrow);
    runOn(c, narrow, false);
    runOn(c, narrow, true);
    EXPECT_LT(relativeError(narrow.dq, data.dq), 1e-5);
    EXPECT_LT(relativeError(narrow.dk, data.dk), 1e-5);
    EXPECT_LT(relativeError(narrow.dV, data.dV), 1e-5);
  }
}

// Attention on bf16 arrays, computed in f32, compared with f64 on the same
// numbers. The log-sum-exp and the bias are f32.
TEST(Attention, Bf16) {
  for (const AttentionCase &c : cases()) {
    SCOPED_TRACE(c.text());
    AttentionData<double> wide(c);
    for (auto *values : {&wide.q, &wide.k, &wide.v, &wide.dO})
      *values = roundedToBf16(*values);
    auto q = toBf16(wide.q), k = toBf16(wide.k), v = toBf16(wide.v),
         dO = toBf16(wide.dO);
    runOn(c, wide, false);
    std::vector<uint16_t> o(wide.o.size()), dq(q.size()), dk(k.size()),
        dV(v.size());
    std::vector<float> lse(wide.lse.size());
    std::vector<float> bias(wide.bias.begin(), wide.bias.end());
    auto run = [&](bool backward, int threads) {
      Attention x = describe(c, DType::BF16, backward);
      std::string error;
      int64_t bytes = attentionWorkspace(x, threads, error);
      EXPECT_GE(bytes, 0) << error;
      Aligned<char> workspace(bytes);
      std::fill_n(workspace.data.get(), bytes, char(0xff)); // NaNs
      AttentionBuffers at;
      at.q = q.data(), at.k = k.data(), at.v = v.data();
      at.o = o.data(), at.lse = lse.data(), at.dO = dO.data();
      at.dq = dq.data(), at.dk = dk.data(), at.dV = dV.data();
      if (c.bias)
        at.bias = bias.data();
      bindMasks(c, wide, at);
      at.workspace = workspace.data.get();
      makeAttention(x, at, threads)();
    };
    run(false, 3);
    EXPECT_LT(relativeError(fromBf16(o), wide.o), halfUlp);
    for (size_t i = 0; i < lse.size(); ++i)
      if (!std::isinf(wide.lse[i]))
        EXPECT_NEAR(lse[i], wide.lse[i], 2e-5);
    // The backward pass reads o as the forward pass stored it in bf16.
    wide.o = fromBf16(o);
    wide.lse.assign(lse.begin(), lse.end());
    runOn(c, wide, true);
    run(true, 3);
    auto once = std::tuple(dq, dk, dV);
    EXPECT_LT(relativeError(fromBf16(dq), wide.dq), 2 * halfUlp);
    EXPECT_LT(relativeError(fromBf16(dk), wide.dk), 2 * halfUlp);
    EXPECT_LT(relativeError(fromBf16(dV), wide.dV), 2 * halfUlp);
    run(true, 1);
    EXPECT_EQ(std::tuple(dq, dk, dV), once);
  }
}

TEST(Attention, RefusesOtherTypes) {
  std::string error;
  AttentionCase c;
  EXPECT_EQ(attentionWorkspace(describe(c, DType::I32, false), 1, error), -1);
  EXPECT_NE(error.find("i32"), std::string::npos) << error;
}
} // namespace
